// The released vocabulary, from the large test data.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/sha256.h"
#include "deepinfer/chat.h"
#include "golden_cases.h"
#include "test_support.h"
#include "text/engram_token_map.h"

namespace deepinfer::text {
namespace {

class LargeVocabulary : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("DEEPINFER_TEST_DATA");
    if (folder == nullptr || *folder == '\0') GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
    data_ = folder;
  }

  const Tokenizer& tokenizer() const {
    static const Tokenizer t = Tokenizer::load(data_ / "data/tokenizer-v41");
    return t;
  }

  std::filesystem::path data_;
};

using Ids = std::vector<int32_t>;

TEST_F(LargeVocabulary, MatchesGoldens) {
  EXPECT_EQ(tokenizer().vocab_size(), 129280);
  expect_golden_cases(tokenizer(), data_ / "golden/tokenizer/full_v41.json", SpecialFlags::kOther);
}

// spec/checkpoint.md §3.4.
TEST_F(LargeVocabulary, MatchesPublishedEncodings) {
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ",
       {19923, 3,   223,   5464, 5008, 1175,  19,   940,   223, 19,  438,   223, 20,
        6113,  257, 76589, 131,  100,  76032, 1628, 76589, 131, 108, 76589, 131, 98}},
      {"<｜User｜>你好<｜Assistant｜><think>推理</think>答案<｜end▁of▁sentence｜>",
       {128803, 30594, 128804, 128821, 36101, 128822, 7624, 1}},
      {"<｜begin▁of▁sentence｜><｜User｜>hello<｜Assistant｜></think>",
       {0, 128803, 33310, 128804, 128822}},
      {"The quick brown fox jumps over the lazy dog.",
       {671, 4787, 13769, 46012, 54994, 1060, 270, 41638, 6397, 16}},
      {"def f(x):\n    return x**2  # square\n",
       {3465, 285, 4042, 3395, 361, 1354, 1527, 666, 20, 223, 1823, 5080, 201}},
      {"1234567890", {6895, 18009, 25744, 18}},
      {"don't can't 3.14", {20385, 1664, 588, 1664, 223, 21, 16, 929}},
      {"你好，世界！", {30594, 303, 3427, 1175}},
      {"Привет, мир!", {24797, 8919, 14, 74779, 3}},
      {"😀👍🏽", {28927, 225, 92526, 40965, 124}},
      {"a\u0301", {67, 17793}},
      {"한국어 문장", {5634, 17564, 9227, 22426, 14301}},
      {" \n\n", {1004}},
      {"C++20 std::vector<int>", {37, 3312, 397, 6849, 2366, 10689, 11699, 32}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer().encode(text), ids) << text;
  const auto plain = [&](const std::string& text) {
    return tokenizer().encode(text, SpecialTokens::kPlain);
  };
  EXPECT_EQ(plain("<think>"), (Ids{30, 37947, 32}));
  EXPECT_EQ(plain("<｜User｜>"), (Ids{30, 28217, 6756, 28217, 32}));
  EXPECT_EQ(plain("｜DSML｜"), (Ids{28217, 10525, 7398, 28217}));
}

template <typename T>
std::string sha256_hex(std::span<const T> values) {
  std::string hex;
  for (const std::byte b : Sha256().add(std::as_bytes(values)).finish()) {
    hex += fmt::format("{:02x}", std::to_integer<int>(b));
  }
  return hex;
}

// Values and digests (as int32 and as int64) of spec/checkpoint.md §5.2.
TEST_F(LargeVocabulary, EngramMapHasThePublishedValues) {
  const std::vector<int32_t> map = derive_engram_token_map(tokenizer());
  ASSERT_EQ(map.size(), 129280U);
  const std::vector<std::pair<size_t, int32_t>> values = {
      {2, 2},          {9, 9},          {201, 174},      {223, 174},      {262, 174},
      {271, 174},      {270, 237},      {1805, 237},     {671, 237},      {19923, 15844},
      {33310, 15844},  {44388, 15844},  {45948, 15844},  {127999, 97811}, {128000, 97812},
      {128799, 98611}, {128803, 98615}, {128804, 98616}, {128821, 98633}, {128822, 98634},
      {128825, 98637}, {129264, 99076}, {129279, 99091}};
  for (const auto& [id, value] : values) EXPECT_EQ(map[id], value) << id;
  EXPECT_EQ(sha256_hex(std::span<const int32_t>(map)),
            "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  const std::vector<int64_t> wide(map.begin(), map.end());
  EXPECT_EQ(sha256_hex(std::span<const int64_t>(wide)),
            "26b9be2936d236a124ba318a998c417bc7032e3e92a3107fe98deee49f1dc496");
  EXPECT_EQ(*std::max_element(map.begin(), map.end()), 99091);
}

// Token counts and ids of spec/checkpoint.md §4.6.
TEST_F(LargeVocabulary, EncodesConversations) {
  EXPECT_EQ(encode_chat(tokenizer(), render_chat(R"([{"role":"user","content":"question"}])", {})),
            (Ids{0,   128799, 77666, 288,   9504, 482,    28,    223,    2402,  343, 16801,
                 223, 19,     15,    1457,  14,   270,    4077,  270,    1990,  14,  270,
                 850, 15146,  270,   22805, 868,  128803, 20072, 128804, 128821}));
  EXPECT_EQ(encode_chat(tokenizer(), render_chat(R"([{"role":"user","content":[
                {"type":"text","text":"inspect"},{"type":"image"}]}])",
                                                 {.thinking = false})),
            (Ids{0, 128803, 261, 25133, 271, 129264, 128804, 128822}));
  const ChatPrompt prompt = render_chat(
      R"([{"role":"system","content":"You are a helpful assistant."},
          {"role":"user","content":"What's the weather in Beijing?"},
          {"role":"assistant","reasoning_content":"The user wants to know the weather in Beijing. I should use the get_weather tool.",
           "tool_calls":[{"id":"call_001","type":"function","function":{"name":"get_weather",
             "arguments":"{\"location\": \"Beijing\", \"unit\": \"celsius\"}"}}]},
          {"role":"tool","tool_call_id":"call_001","content":"{\"temperature\": 22, \"condition\": \"sunny\", \"humidity\": 45}"},
          {"role":"assistant","reasoning_content":"Got the weather data. Let me format a nice response.",
           "content":"The weather in Beijing is currently sunny with a temperature of 22°C and 45% humidity."}])",
      {.effort = "75", .tools = R"([{"type":"function","function":{"name":"get_weather",
          "description":"Get the weather for a specific location","parameters":{"type":"object",
          "properties":{"location":{"type":"string","description":"The city name"},"unit":{"type":"string",
          "enum":["celsius","fahrenheit"],"description":"Temperature unit"}},"required":["location"]}}},
          {"type":"function","function":{"name":"search","description":"Search the web for information",
          "parameters":{"type":"object","properties":{"query":{"type":"string","description":"Search query"},
          "num_results":{"type":"integer","description":"Number of results to return"}},
          "required":["query"]}}}])"});
  const std::string text = prompt.text();
  EXPECT_EQ(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }),
            2374);
  EXPECT_EQ(encode_chat(tokenizer(), prompt).size(), 551U);
}

// spec/checkpoint.md §3.3: what the official service counts for a message of this text.
TEST_F(LargeVocabulary, CountsSpellingsInContentAsTheServiceDoes) {
  const std::vector<std::pair<std::string, size_t>> cases = {
      {"", 4}, {"x", 5}, {"<｜User｜>", 9}, {"<think>", 7}, {"</think>", 7}};
  for (const auto& [content, count] : cases) {
    const ChatPrompt prompt =
        render_chat(R"([{"role":"user","content":")" + content + R"("}])", {.thinking = false});
    EXPECT_EQ(encode_chat(tokenizer(), prompt).size(), count) << content;
  }
}

}  // namespace
}  // namespace deepinfer::text
