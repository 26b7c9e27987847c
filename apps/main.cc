#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/output.h"
#include "base/error.h"
#include "deepinfer/error.h"
#include "deepinfer/tokenizer.h"
#include "deepinfer/version.h"

namespace deepinfer::apps {
namespace {

constexpr int kInternalFault = exit_code(ErrorCode::kInternal);
constexpr int kBrokenPipe = 128 + SIGPIPE;  // what a shell reports for a program that SIGPIPE ended

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(std::span<const std::string>);
};

constexpr std::array kCommands = std::to_array<Command>({
    {"generate", "continue prompts: one on the terminal, or a file of them", generate},
    {"score", "log-probabilities and perplexity of given texts", score},
    {"devices", "list the GPUs and whether they can be used", devices},
    {"inspect", "describe and check a checkpoint folder", inspect},
    {"synth", "write a checkpoint with random weights", synth},
    {"bench", "measure prefill, decode and every operation", bench},
    {"tokenize", "text or messages to token ids, and ids to text", tokenize},
    {"parse", "a completion to a message with reasoning and tool calls", parse},
#ifdef DEEPINFER_SERVER
    {"serve", "serve a model over HTTP: OpenAI's API and a chat page", serve},
    {"bench serve", "load a running server and report latencies and throughput", bench_serve},
    {"bench sweep", "draw a running server's throughput against its latency", bench_sweep},
#endif
});

std::string usage() {
  std::string text =
      "deepinfer: inference for DeepSeek-V4.1-Flash\n"
      "Usage: deepinfer COMMAND [FLAGS]\n\n"
      "Commands (each has --help):\n";
  for (const Command& command : kCommands)
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  text += "\n  --version   print the version\n  --help      print this text\n";
  return text;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    fail(ErrorCode::kInvalidArgument, "a sub-command is missing (see deepinfer --help)");
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "--version") {
    if (arguments.size() > 1) {
      fail(ErrorCode::kInvalidArgument, "{} stands alone, without \"{}\"", name, arguments[1]);
    }
    Output().write(name == "--version" ? fmt::format("deepinfer {}\n", version()) : usage());
    return 0;
  }
  // A command's name may have two words.
  const std::string two = arguments.size() > 1 ? name + " " + arguments[1] : name;
  if (const auto pair = std::ranges::find(kCommands, two, &Command::name);
      pair != kCommands.end() && two != name) {
    return pair->run(std::span(arguments).subspan(2));
  }
  const auto command = std::ranges::find(kCommands, name, &Command::name);
  if (command == kCommands.end()) {
    fail(ErrorCode::kInvalidArgument, "there is no sub-command \"{}\" (see deepinfer --help)",
         name);
  }
  return command->run(std::span(arguments).subspan(1));
}

/// Prints an error as one line of text: names in it may hold any bytes.
int report(std::string_view message, int code) {
  std::string line = "deepinfer: ";
  for (const char c : replace_invalid_utf8(message)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

}  // namespace

/// Runs the program; whatever is thrown becomes a line on stderr and an exit code.
int guarded_run(const std::vector<std::string>& arguments) {
  reserve_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);  // write() reports it
  try {
    return run(arguments);
  } catch (const ClosedOutput&) {
    return kBrokenPipe;
  } catch (const Error& error) {
    return report(error.what(), exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    return report("there is not enough memory for this", 2);
  } catch (const std::exception& error) {
    return report(fmt::format("internal fault: {}", error.what()), kInternalFault);
  }
}

}  // namespace deepinfer::apps

int main(int argc, char** argv) {
  return deepinfer::apps::guarded_run({argv + std::min(argc, 1), argv + argc});
}
