#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors_writer.h"
#include "temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

/// A file image: header length, header, payload.
std::string image(const std::string& header, size_t payload_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(payload_bytes, '\x01');
}

std::vector<HeaderEntry> parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)), "test.safetensors");
}

std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "accepted";
}

TEST(SafetensorsHeader, ReadsEntriesInFileOrder) {
  const auto entries = parse(image(
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"e":{"dtype":"I8","shape":[0],"data_offsets":[11,11]},)"
      R"("__metadata__":{"format":"pt"}}      )",
      11));
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].num_bytes(), 8);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[2].shape, std::vector<int64_t>{0});
}

struct Refusal {
  const char* header;
  size_t payload_bytes;
  const char* message;  // part of the error
};

class SafetensorsRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(SafetensorsRefusal, SaysWhatIsWrong) {
  const Refusal& refusal = GetParam();
  EXPECT_NE(error_of(image(refusal.header, refusal.payload_bytes)).find(refusal.message),
            std::string::npos)
      << error_of(image(refusal.header, refusal.payload_bytes));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsRefusal,
    testing::Values(
        Refusal{"[]", 0, "must start with"}, Refusal{"", 0, "must start with"},
        Refusal{"{", 0, "not valid JSON"}, Refusal{R"({"a":1})", 0, "not an object"},
        Refusal{R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "does not give its dtype"},
        Refusal{R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "must be a string"},
        Refusal{R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1,
                "not a safetensors dtype"},
        Refusal{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "whole numbers"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "whole numbers"},
        Refusal{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                "whole numbers"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1e30],"data_offsets":[0,1]}})", 1, "whole numbers"},
        Refusal{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                "overflows"},
        Refusal{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
                "overflows"},
        Refusal{
            R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
            1, "at most"},
        Refusal{R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", 1, "nested deeper"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1]}})", 1, "does not give its data_offsets"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "[begin, end]"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "backwards"},
        Refusal{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
                "pass the end of the file"},
        Refusal{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1, "takes 2"},
        Refusal{
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3, "overlaps"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
                "belong to no tensor"},
        Refusal{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
                "1 bytes at the end"},
        Refusal{
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            2, "appears twice"},
        Refusal{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )", 4,
                "multiple of its element size"},
        Refusal{R"({"__metadata__":{"format":1}})", 0, "object of strings"}));

TEST(SafetensorsHeader, RefusesLyingLengths) {
  EXPECT_NE(error_of("1234567").find("too few"), std::string::npos);
  std::string bytes = image("{}", 0);
  bytes[0] = 3;
  EXPECT_NE(error_of(bytes).find("claims 3 bytes"), std::string::npos);
  std::memset(bytes.data(), 0xFF, 8);
  EXPECT_NE(error_of(bytes).find("claims 18446744073709551615"), std::string::npos);
}

TEST(SafetensorsHeader, SurvivesRandomMutations) {
  const std::string good = image(
      R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string bytes = good;
    for (uint32_t i = 0; i <= seed % 4; ++i) {
      bytes[random() % bytes.size()] = "0123456789[]{}\",:a\xff"[random() % 19];
    }
    if (seed % 5 == 0) bytes.resize(random() % bytes.size());
    try {
      // Whatever is accepted must lie inside the file.
      for (const HeaderEntry& entry : parse(bytes)) {
        EXPECT_GE(entry.begin, 0);
        EXPECT_LE(entry.end, static_cast<int64_t>(bytes.size()));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
    }
  }
}

TEST(SafetensorsWriter, RoundTripsTensorsOfMixedTypes) {
  const TemporaryDirectory directory;
  Tensor bytes(DType::kU8, {3});
  Tensor floats(DType::kF32, {2, 2});
  for (int i = 0; i < 3; ++i) bytes.as<uint8_t>()[i] = static_cast<uint8_t>(i + 7);
  for (int i = 0; i < 4; ++i) floats.as<float>()[i] = 0.5F * static_cast<float>(i);
  const std::vector<std::pair<std::string, TensorView>> tensors = {{"q\"uote", bytes},
                                                                   {"floats", floats}};
  write_safetensors(directory / "a.safetensors", tensors);

  const SafetensorsFile file = SafetensorsFile::open(directory / "a.safetensors");
  EXPECT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.tensor("floats").shape(), Shape({2, 2}));
  EXPECT_EQ(file.tensor("floats").as<float>()[3], 1.5F);
  EXPECT_EQ(file.tensor("q\"uote").as<uint8_t>()[2], 9);
  EXPECT_THROW(file.tensor("absent"), Error);
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutCommit) {
  const TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "a.safetensors", {{"x", DType::kU8, {4}}});
    const std::byte one{1};
    writer.write({&one, 1});
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsFile, OpensGoldenFiles) {
  const std::filesystem::path data = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests/data";
  const SafetensorsFile ops = SafetensorsFile::open(data / "ops.safetensors");
  EXPECT_EQ(ops.tensor("e4m3.x").dtype(), DType::kF32);
  EXPECT_EQ(ops.tensor("rope_main.x").shape(), Shape({5, 128}));
}

}  // namespace
}  // namespace deepinfer::checkpoint
