#include "deepinfer/tokenizer.h"
#include "text/utf8.h"

namespace deepinfer {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string IncrementalDetokenizer::push(int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  // Only the last three bytes can be a character that goes on.
  const size_t size = pending_.size();
  size_t held = 0;
  for (size_t back = 1; back <= 3 && back <= size; ++back) {
    const char* at = pending_.data() + size - back;
    if (text::decode_utf8(at, pending_.data() + size).value == text::kIncomplete) held = back;
  }
  std::string ready = replace_invalid_utf8(std::string_view(pending_).substr(0, size - held));
  pending_.erase(0, size - held);
  return ready;
}

std::string IncrementalDetokenizer::finish() {
  std::string rest = replace_invalid_utf8(pending_);
  pending_.clear();
  return rest;
}

}  // namespace deepinfer
