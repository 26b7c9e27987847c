// Any bytes as a list of messages: they are refused, or rendered and encoded so that decoding gives
// the rendered text.

#include <filesystem>
#include <string_view>

#include "deepinfer/chat.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const deepinfer::Tokenizer tiny = deepinfer::Tokenizer::load(
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41", {.cache_pieces = 64});
  const std::string_view messages(reinterpret_cast<const char*>(data), size);
  for (const bool thinking : {false, true}) {
    deepinfer::fuzz::may_refuse([&] {
      const deepinfer::ChatPrompt prompt = deepinfer::render_chat(messages, {.thinking = thinking});
      if (tiny.decode(deepinfer::encode_chat(tiny, prompt)) != prompt.text()) std::abort();
    });
  }
  return 0;
}
