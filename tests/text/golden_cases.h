#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "deepinfer/tokenizer.h"
#include "text/json_value.h"

namespace deepinfer::text {

/// Whether the vocabulary marks the same tokens as special as the one that made the goldens did.
enum class SpecialFlags { kSame, kOther };

/// Checks a tokenizer against a golden file: texts, their ids, and both ways of decoding them.
inline void expect_golden_cases(const Tokenizer& tokenizer, const std::filesystem::path& path,
                                SpecialFlags flags) {
  const JsonValue root = parse_json_value(read_file(path, 1 << 24), path.string());
  const JsonValue* cases = root.find("cases");
  ASSERT_NE(cases, nullptr);
  ASSERT_GT(cases->values.size(), 200U);
  for (const JsonValue& golden : cases->values) {
    const std::string& text = golden.find("text")->text;
    SCOPED_TRACE(quote_json(text));
    std::vector<int32_t> ids;
    for (const JsonValue& id : golden.find("ids")->values) ids.push_back(std::stoi(id.text));
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(replace_invalid_utf8(tokenizer.decode(ids)), golden.find("decoded")->text);
    if (flags == SpecialFlags::kOther) continue;
    EXPECT_EQ(replace_invalid_utf8(tokenizer.decode(ids, true)),
              golden.find("decoded_skip_special")->text);
  }
}

}  // namespace deepinfer::text
