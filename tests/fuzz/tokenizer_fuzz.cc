// Any bytes as a tokenizer.json, and any bytes as text: loading fails with an Error or works, and
// whatever loaded decodes what it encodes.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "deepinfer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

using deepinfer::IncrementalDetokenizer;
using deepinfer::SpecialTokens;
using deepinfer::Tokenizer;

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, special);
    if (tokenizer.decode(ids) != text) std::abort();
    IncrementalDetokenizer detokenizer(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.push(id);
    streamed += detokenizer.finish();
    if (streamed != deepinfer::replace_invalid_utf8(text)) std::abort();
  }
}

}  // namespace

/// The first byte chooses: odd for a tokenizer.json, even for text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tiny = Tokenizer::load(
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41", {.cache_pieces = 64});
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    check_round_trip(tiny, text);
    return 0;
  }
  deepinfer::fuzz::may_refuse(
      [&] { check_round_trip(Tokenizer::from_json(text, "input", {.cache_pieces = 16}), text); });
  return 0;
}
