#include "text/merge_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace deepinfer::text {
namespace {

struct Rule {
  int32_t left;
  int32_t right;
  int32_t id;
};

/// BPE as it is defined: the lowest rank anywhere, leftmost, until nothing merges.
std::vector<int32_t> merge_slowly(const std::vector<Rule>& rules, const std::string& piece) {
  std::vector<int32_t> symbols;
  for (const char c : piece) symbols.push_back(static_cast<uint8_t>(c));
  for (;;) {
    bool merged = false;
    for (const Rule& rule : rules) {
      for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        if (symbols[i] != rule.left || symbols[i + 1] != rule.right) continue;
        symbols[i] = rule.id;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
    if (!merged) return symbols;
  }
}

MergeTable table_of(const std::vector<Rule>& rules) {
  std::array<int32_t, 256> bytes{};
  for (int b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = b;
  MergeTable table(rules.size(), bytes);
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    EXPECT_TRUE(table.add(rules[rank].left, rules[rank].right,
                          {static_cast<uint32_t>(rank), rules[rank].id}));
  }
  return table;
}

TEST(MergeTable, MatchesTheDefinitionForRandomMerges) {
  std::mt19937 random(20261201);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    // Rules over three letters and earlier results, shuffled so that ranks do not follow creation.
    std::map<std::string, int32_t> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::vector<std::string> known = {"a", "b", "c"};
    std::vector<Rule> rules;
    for (int32_t i = 0; i < 20; ++i) {
      const std::string left = known[random() % known.size()];
      const std::string right = known[random() % known.size()];
      bool repeated = false;
      for (const Rule& r : rules) repeated |= r.left == ids[left] && r.right == ids[right];
      if (repeated) continue;
      const auto id = static_cast<int32_t>(256 + ids.size());
      const auto [at, added] = ids.emplace(left + right, id);
      if (added) known.push_back(left + right);
      rules.push_back({ids[left], ids[right], at->second});
    }
    if (round % 2 == 1) std::shuffle(rules.begin(), rules.end(), random);
    const MergeTable table = table_of(rules);
    MergeScratch scratch;
    for (const size_t length : {1U, 2U, 3U, 7U, 31U, 63U, 64U, 65U, 66U, 100U, 300U}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece += "abc"[random() % 3];
      std::vector<int32_t> got = {-7};  // encode() appends
      table.encode(piece, scratch, got);
      got.erase(got.begin());
      EXPECT_EQ(got, merge_slowly(rules, piece)) << piece;
    }
  }
}

TEST(MergeTable, KeepsTheFirstOfTwoEqualPairs) {
  MergeTable table(2, {});
  EXPECT_TRUE(table.add(1, 2, {0, 300}));
  EXPECT_FALSE(table.add(1, 2, {1, 301}));
  EXPECT_EQ(table.find(1, 2).id, 300);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace deepinfer::text
