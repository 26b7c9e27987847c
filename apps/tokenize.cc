#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/json_input.h"
#include "apps/output.h"
#include "apps/records.h"
#include "base/error.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 30;

std::string read_standard_input() {
  std::string bytes;
  for (;;) {
    constexpr size_t kBlock = size_t{1} << 16;
    const size_t size = bytes.size();
    bytes.resize(size + kBlock);
    const ssize_t count = ::read(STDIN_FILENO, bytes.data() + size, kBlock);
    const int error = errno;
    bytes.resize(size + (count > 0 ? static_cast<size_t>(count) : 0));
    if (count == 0) return bytes;
    if (count < 0 && error != EINTR) {
      fail(ErrorCode::kIo, "standard input: cannot read: {}", std::strerror(error));
    }
    if (bytes.size() > kMaxInputBytes) {
      fail(ErrorCode::kInvalidFile, "standard input: longer than {} bytes", kMaxInputBytes);
    }
  }
}

/// One line per token: id, tab, its bytes as a JSON string.
std::string token_lines(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids)
    text += fmt::format("{}\t{}\n", id, json_string(tokenizer.token_bytes(id)));
  return text;
}

}  // namespace

int tokenize(std::span<const std::string> arguments) {
  Flags flags("tokenize",
              "Prints the token ids of a text, or with --decode the text of token ids. The folder "
              "needs only\ntokenizer.json. Nothing is added to the text, and the line end of "
              "standard input belongs to it.");
  std::string model;
  std::optional<std::string> argument;
  bool decode = false;
  bool json = false;
  bool plain = false;
  flags.text("--model", "DIR", &model, "Folder with tokenizer.json");
  flags.require("--model");
  flags.text("text", "TEXT", &argument,
             "The text (with --decode: the list); standard input, byte for byte, if missing");
  flags.toggle("--decode", &decode, "Read a JSON list of ids and print their bytes");
  flags.toggle("--json", &json,
               "Print one list of ids; with --decode, the text as one JSON string");
  flags.toggle("--plain", &plain,
               "Encode the spellings of special tokens (<think>, …) like any other text");
  if (!flags.parse(arguments)) return 0;
  const Tokenizer tokenizer = Tokenizer::load(model);
  const std::string input = argument ? *argument : read_standard_input();
  std::string result;
  if (decode) {
    const std::vector<int32_t> ids =
        parse_id_list(input, argument ? "the argument" : "standard input");
    const std::string bytes = tokenizer.decode(ids);
    result = json ? json_string(bytes) + "\n" : bytes;
  } else {
    const std::vector<int32_t> ids =
        tokenizer.encode(input, plain ? SpecialTokens::kPlain : SpecialTokens::kParse);
    result = json ? json_ids(ids) + "\n" : token_lines(tokenizer, ids);
  }
  Output().write(result);
  return 0;
}

}  // namespace deepinfer::apps
