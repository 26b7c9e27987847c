#include "text/engram_token_map.h"

#include "base/file.h"
#include "test_support.h"
#include "text/json_value.h"

namespace deepinfer::text {
namespace {

TEST(EngramTokenMap, EqualsTheTinyModelsMap) {
  const std::filesystem::path path =
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41/engram_token_map.json";
  std::vector<int32_t> expected;
  for (const JsonValue& id : parse_json_value(read_file(path, 1 << 20), path.string()).values) {
    expected.push_back(std::stoi(id.text));
  }
  EXPECT_EQ(derive_engram_token_map(tiny_tokenizer()), expected);
}

}  // namespace
}  // namespace deepinfer::text
