#pragma once

#include <span>
#include <string_view>

#include "deepinfer/chat.h"

namespace deepinfer::text {

// Spellings of the tokens that structure a conversation (spec/checkpoint.md §3.2).
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImage = "<｜deepseek_image｜>";

/// Collects the segments of a prompt: adjacent text becomes one segment, since it must be encoded
/// as one text.
class PromptBuilder {
 public:
  void token(std::string_view spelling) { add(PromptSegment::Kind::kToken, spelling); }
  /// Text that a user, a tool or a model wrote.
  void text(std::string_view text) { add(PromptSegment::Kind::kText, text); }
  /// Text of the format itself, whose marks (DSML, think) are tokens.
  void markup(std::string_view text);
  /// Text of an assistant, in which grounding marks (boxes, points, references) are tokens if the
  /// vocabulary has them.
  void assistant_text(std::string_view text);
  /// The segments of another prompt.
  void append(const std::vector<PromptSegment>& segments);

  const std::vector<PromptSegment>& segments() const { return segments_; }
  std::vector<PromptSegment> take() { return std::move(segments_); }

 private:
  void add(PromptSegment::Kind kind, std::string_view text);
  void split(std::string_view text, std::span<const std::string_view> marks,
             PromptSegment::Kind kind);

  std::vector<PromptSegment> segments_;
};

}  // namespace deepinfer::text
