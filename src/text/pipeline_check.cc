#include "text/pipeline_check.h"

#include <array>
#include <string>

#include "base/error.h"

namespace deepinfer::text {
namespace {

/// The patterns of the three isolating splits, as tokenizer.json spells them (spec/checkpoint.md
/// §3.1); PreTokenizer is written for exactly these.
constexpr std::array<std::string_view, 3> kSplitPatterns = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

std::string type_of(const JsonValue* value) {
  if (value == nullptr) return "missing";
  if (value->is(JsonValue::Kind::kString)) return quote_json(value->text.substr(0, 200));
  const JsonValue* type = value->find("type");
  if (type != nullptr && type->is(JsonValue::Kind::kString)) {
    return quote_json(type->text.substr(0, 100));
  }
  return describe(value->kind);
}

bool has_type(const JsonValue* value, std::string_view type) {
  if (value == nullptr) return false;
  const JsonValue* found = value->find("type");
  return found != nullptr && found->is(JsonValue::Kind::kString) && found->text == type;
}

/// Whether an optional setting is absent, null, false, zero or empty.
bool is_off(const JsonValue* value) {
  if (value == nullptr) return true;
  switch (value->kind) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBoolean:
      return !value->boolean;
    case JsonValue::Kind::kNumber:
      return value->text == "0" || value->text == "0.0";
    case JsonValue::Kind::kString:
      return value->text.empty();
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      return value->values.empty();
  }
  return false;
}

void check_model(const JsonValue& root, std::string_view source) {
  const JsonValue* model = root.find("model");
  if (!has_type(model, "BPE")) {
    fail(ErrorCode::kUnsupported, "{}: the tokenizer's model is {}, only \"BPE\" is supported",
         source, type_of(model));
  }
  for (const char* option : {"dropout", "unk_token", "continuing_subword_prefix",
                             "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"}) {
    if (!is_off(model->find(option))) {
      fail(ErrorCode::kUnsupported, "{}: the BPE model sets \"{}\", which is not supported", source,
           option);
    }
  }
}

void check_normalizer(const JsonValue& root, std::string_view source) {
  const JsonValue* normalizer = root.find("normalizer");
  if (normalizer == nullptr || normalizer->is(JsonValue::Kind::kNull)) return;
  if (has_type(normalizer, "Sequence")) {
    const JsonValue* steps = normalizer->find("normalizers");
    if (steps == nullptr || steps->values.empty()) return;
    normalizer = &steps->values.front();
  }
  fail(ErrorCode::kUnsupported, "{}: the normalizer {} is not supported, expected none", source,
       type_of(normalizer));
}

void check_split(const JsonValue& step, size_t index, std::string_view source) {
  const JsonValue* pattern = step.find("pattern");
  const JsonValue* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  const JsonValue* behavior = step.find("behavior");
  if (!has_type(&step, "Split") || regex == nullptr || regex->text != kSplitPatterns[index] ||
      behavior == nullptr || behavior->text != "Isolated" || !is_off(step.find("invert"))) {
    const bool split = has_type(&step, "Split") && regex != nullptr;
    fail(ErrorCode::kUnsupported,
         "{}: step {} of the pre-tokenizer is {}{}, expected DeepSeek's isolating split by {}",
         source, index, type_of(&step), split ? " by " + type_of(regex) : "",
         quote_json(kSplitPatterns[index]));
  }
}

void check_pre_tokenizer(const JsonValue& root, std::string_view source) {
  const JsonValue* pre_tokenizer = root.find("pre_tokenizer");
  const JsonValue* steps = nullptr;
  if (has_type(pre_tokenizer, "Sequence")) steps = pre_tokenizer->find("pretokenizers");
  if (steps == nullptr || steps->values.size() != kSplitPatterns.size() + 1) {
    fail(ErrorCode::kUnsupported,
         "{}: the pre-tokenizer is {}{}, expected DeepSeek's \"Sequence\" of three splits and "
         "\"ByteLevel\"",
         source, type_of(pre_tokenizer),
         steps == nullptr ? "" : fmt::format(" of {} steps", steps->values.size()));
  }
  for (size_t i = 0; i < kSplitPatterns.size(); ++i) check_split(steps->values[i], i, source);
  const JsonValue& last = steps->values.back();
  // Absent, these two default to true.
  for (const char* option : {"add_prefix_space", "use_regex"}) {
    const JsonValue* value = last.find(option);
    if (!has_type(&last, "ByteLevel") || value == nullptr || !is_off(value)) {
      fail(ErrorCode::kUnsupported,
           "{}: the last step of the pre-tokenizer is {}, expected \"ByteLevel\" with \"{}\" false",
           source, type_of(&last), option);
    }
  }
}

}  // namespace

void check_pipeline(const JsonValue& root, std::string_view source) {
  if (!root.is(JsonValue::Kind::kObject)) {
    fail(ErrorCode::kInvalidFile, "{}: the file holds {}, expected an object", source,
         describe(root.kind));
  }
  check_model(root, source);
  check_normalizer(root, source);
  check_pre_tokenizer(root, source);
  if (!has_type(root.find("decoder"), "ByteLevel")) {
    fail(ErrorCode::kUnsupported, "{}: the decoder is {}, only \"ByteLevel\" is supported", source,
         type_of(root.find("decoder")));
  }
}

}  // namespace deepinfer::text
