#include "text/prompt_builder.h"

#include <array>

#include "base/error.h"

namespace deepinfer {
namespace text {
namespace {

constexpr std::array<std::string_view, 3> kMarkup = {kDsml, kThink, kEndThink};
constexpr std::array<std::string_view, 8> kGrounding = {
    "<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
    "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};

}  // namespace

void PromptBuilder::add(PromptSegment::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind == PromptSegment::Kind::kText && !segments_.empty() && segments_.back().kind == kind) {
    segments_.back().text += text;
  } else {
    segments_.push_back({kind, std::string(text)});
  }
}

void PromptBuilder::markup(std::string_view text) {
  split(text, kMarkup, PromptSegment::Kind::kToken);
}

void PromptBuilder::assistant_text(std::string_view text) {
  split(text, kGrounding, PromptSegment::Kind::kTokenIfKnown);
}

void PromptBuilder::append(const std::vector<PromptSegment>& segments) {
  for (const PromptSegment& segment : segments) add(segment.kind, segment.text);
}

/// Adds text with the given marks as tokens. All marks begin with '<' or '｜' (U+FF5C, EF BD 9C).
void PromptBuilder::split(std::string_view text, std::span<const std::string_view> marks,
                          PromptSegment::Kind kind) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    at = text.find_first_of("<\xEF", at);
    if (at == std::string_view::npos) break;
    const std::string_view rest = text.substr(at);
    size_t length = 0;
    for (const std::string_view mark : marks) {
      if (rest.starts_with(mark)) length = mark.size();
    }
    if (length > 0) {
      add(PromptSegment::Kind::kText, text.substr(begin, at - begin));
      add(kind, rest.substr(0, length));
      begin = at + length;
    }
    at += length > 0 ? length : 1;
  }
  add(PromptSegment::Kind::kText, text.substr(begin));
}

}  // namespace text

std::string ChatPrompt::text() const {
  std::string result;
  for (const PromptSegment& segment : segments) result += segment.text;
  return result;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatPrompt& prompt) {
  std::vector<int32_t> ids;
  std::string text;  // adjacent text, encoded as one
  for (const PromptSegment& segment : prompt.segments) {
    std::optional<int32_t> id;
    if (segment.kind != PromptSegment::Kind::kText) id = tokenizer.added_token(segment.text);
    if (!id && segment.kind == PromptSegment::Kind::kToken) {
      fail(ErrorCode::kUnsupported, "the vocabulary has no token \"{}\", which {}", segment.text,
           segment.text == text::kSystem
               ? "the conversation needs: for a system message, tools or thinking mode"
               : "this conversation needs");
    }
    if (!id) {
      text += segment.text;
      continue;
    }
    tokenizer.encode(text, SpecialTokens::kPlain, ids);
    text.clear();
    ids.push_back(*id);
  }
  tokenizer.encode(text, SpecialTokens::kPlain, ids);
  return ids;
}

}  // namespace deepinfer
