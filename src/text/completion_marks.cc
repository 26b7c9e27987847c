#include "text/completion_marks.h"

#include <array>
#include <utility>

#include "text/prompt_builder.h"

namespace deepinfer::text {
namespace {

constexpr std::array<std::pair<char, std::string_view>, 5> kMarks = {{{kMarkThink, kThink},
                                                                      {kMarkEndThink, kEndThink},
                                                                      {kMarkDsml, kDsml},
                                                                      {kMarkEos, kEos},
                                                                      {kMarkBos, kBos}}};

}  // namespace

std::string_view spelling_of(char mark) {
  for (const auto& [symbol, spelling] : kMarks) {
    if (symbol == mark) return spelling;
  }
  return {};
}

std::string spell_marks(std::string_view symbols) {
  std::string text;
  for (const char c : symbols) {
    if (is_mark(c)) {
      text += spelling_of(c);
    } else {
      text.push_back(c);
    }
  }
  return text;
}

std::string MarkFinder::push(std::string_view text) {
  std::string symbols;
  for (const char c : text) {
    pending_.push_back(c);
    // Shorten from the front until what is left begins a mark; no mark is a prefix of another.
    while (!pending_.empty()) {
      bool begins_mark = false;
      for (const auto& [symbol, spelling] : kMarks) {
        if (pending_ == spelling) {
          symbols.push_back(symbol);
          pending_.clear();
        }
        begins_mark |= spelling.starts_with(pending_);
      }
      if (begins_mark) break;
      symbols.push_back(pending_.front());
      pending_.erase(0, 1);
    }
  }
  return symbols;
}

std::string MarkFinder::finish() {
  return std::exchange(pending_, {});
}

}  // namespace deepinfer::text
