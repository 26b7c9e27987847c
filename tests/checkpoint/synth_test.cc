#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "checkpoint/presets.h"
#include "checkpoint/random_weights.h"
#include "deepinfer/checkpoint.h"
#include "temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Moments {
  double mean = 0;
  double deviation = 0;
};

/// Moments of a weight's dequantised values.
Moments moments(const QuantView& weight) {
  double sum = 0;
  double squares = 0;
  for (int64_t row = 0; row < weight.rows(); ++row) {
    for (int64_t col = 0; col < weight.cols(); ++col) {
      float value = 0;
      if (weight.weight.dtype() == DType::kBF16) {
        value = to_float(weight.weight.row<BFloat16>(row)[col]);
      } else {
        const float scale =
            e8m0_to_float(weight.scale.row<uint8_t>(row / weight.scale_rows)[col / 32]);
        const uint8_t* const codes = weight.weight.row<uint8_t>(row);
        value = scale *
                (weight.weight.dtype() == DType::kE4M3
                     ? e4m3_to_float(codes[col])
                     : kE2M1Values[static_cast<size_t>(codes[col / 2] >> (4 * (col % 2)) & 15)]);
      }
      EXPECT_TRUE(std::isfinite(value));
      sum += value;
      squares += static_cast<double>(value) * value;
    }
  }
  const auto count = static_cast<double>(weight.rows() * weight.cols());
  return {sum / count, std::sqrt(squares / count - (sum / count) * (sum / count))};
}

class Synth : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(Synth, TakesPathsRelativeToTheCurrentFolder) {
  const fs::path before = fs::current_path();
  for (const fs::path relative : {"a", "b/", "./c", "d/e", "../up"}) {
    fs::create_directories(directory_ / "inside");
    fs::current_path(directory_ / "inside");
    EXPECT_NO_THROW(
        synthesize_checkpoint({.preset = "nano", .directory = relative, .sparse = true}))
        << relative;
    EXPECT_TRUE(fs::exists(relative / "config.json")) << relative;
    fs::current_path(before);
  }
}

TEST_F(Synth, NanoOpensAndPassesInspection) {
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "nano"});
  const auto checkpoint = Checkpoint::open(directory_ / "nano");
  EXPECT_TRUE(checkpoint->config() == preset_config("nano", {}));
  EXPECT_TRUE(checkpoint->engram_token_map().has_value());
  const InspectReport report = inspect_checkpoint(directory_ / "nano", {.verify_everything = true});
  EXPECT_TRUE(report.ok) << report.text;
  const Json json = parse_json(report.json, "report");
  EXPECT_TRUE(json["ok"].get<bool>());
  EXPECT_EQ(json["memory"]["ring_rows"].get<int>(), 48);
  EXPECT_EQ(json["config"]["text_config"]["hidden_size"].get<int>(), 128);
  for (const Json& check : json["checks"])
    EXPECT_NE(check["result"].get<std::string>(), "fail") << check.dump();
}

TEST_F(Synth, WeightsHaveTheSizeThatKeepsActivations) {
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "nano"});
  const auto checkpoint = Checkpoint::open(directory_ / "nano");
  struct Case {
    const char* name;
    double deviation;
  };
  for (const auto& [name, expected] :
       {Case{"layers.0.attn.wq_b", 1 / 8.0},
        Case{"layers.3.ffn.shared_experts.w1", 1 / std::sqrt(128.0)},
        Case{"layers.3.ffn.experts.2.w1", 1 / std::sqrt(128.0)},
        Case{"layers.3.ffn.experts.2.w2", 1 / 8.0}, Case{"head", 1 / std::sqrt(128.0)},
        Case{"embed", 1}, Case{"layers.1.engram.embed", 1}}) {
    SCOPED_TRACE(name);
    const Moments found = moments(checkpoint->weight(name));
    EXPECT_NEAR(found.mean, 0, 0.1 * expected);
    EXPECT_GT(found.deviation, 0.6 * expected);
    EXPECT_LT(found.deviation, 1.8 * expected);
  }
  const TensorView norm = checkpoint->tensor("layers.0.attn_norm.weight");
  for (int64_t i = 0; i < norm.dim(0); ++i) EXPECT_NEAR(to_float(norm.as<BFloat16>()[i]), 1, 0.5);
}

TEST_F(Synth, BytesDependOnSeedAlone) {
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "a"});
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "b"});
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "c", .seed = 1});
  const uint64_t a = Checkpoint::open(directory_ / "a")->fingerprint();
  EXPECT_EQ(Checkpoint::open(directory_ / "b")->fingerprint(), a);
  EXPECT_NE(Checkpoint::open(directory_ / "c")->fingerprint(), a);
}

TEST(RandomWeights, AreAFunctionOfTheirPosition) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kE4M3, DType::kE8M0, DType::kE2M1x2}) {
    SCOPED_TRACE(to_string(dtype));
    const RandomWeights weights(7,
                                {"layers.0.x.weight", dtype, {64, 64}, TensorKind::kAttention, 0});
    std::vector<std::byte> whole(1000);
    std::vector<std::byte> part(100);
    weights.fill(0, whole);
    weights.fill(480, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 480));
  }
}

TEST_F(Synth, OverridesShapeTheModel) {
  synthesize_checkpoint({.preset = "nano",
                         .directory = directory_ / "x/y/",
                         .layers = 3,
                         .experts = 1,
                         .vocab_size = 100,
                         .engram_vocab_size = 50});
  const auto checkpoint = Checkpoint::open(directory_ / "x/y");
  EXPECT_EQ(checkpoint->config().num_layers, 3);
  EXPECT_EQ(checkpoint->config().num_experts, 1);
  EXPECT_EQ(checkpoint->config().experts_per_token, 1);
  EXPECT_EQ(checkpoint->config().vocab_size, 100);
  EXPECT_EQ(checkpoint->config().engram_vocab_size, 50);
}

TEST_F(Synth, RefusesAFolderWithFilesAndLeavesItAlone) {
  FileWriter file(directory_ / "mine");
  file.commit();
  EXPECT_THROW(synthesize_checkpoint({.preset = "nano", .directory = directory_.path()}), Error);
  EXPECT_THROW(synthesize_checkpoint({.preset = "nano", .directory = directory_ / "mine"}), Error);
  EXPECT_THROW(synthesize_checkpoint({.preset = "nano", .directory = directory_ / "mine/below"}),
               Error);
  EXPECT_THROW(synthesize_checkpoint({.preset = "nano"}), Error);
  EXPECT_TRUE(fs::exists(directory_ / "mine"));
}

TEST_F(Synth, RefusesWhatDoesNotFitBeforeWriting) {
  if (fs::space(directory_.path()).available > uintmax_t{500} << 30)
    GTEST_SKIP() << "the disk is large enough";
  try {
    synthesize_checkpoint({.preset = "flash", .directory = directory_ / "flash"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("takes 475.2"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(Synth, SparseFilesReadAsZeros) {
  synthesize_checkpoint({.preset = "nano", .directory = directory_ / "nano", .sparse = true});
  const auto checkpoint = Checkpoint::open(directory_ / "nano");
  EXPECT_EQ(checkpoint->weight("layers.0.attn.wq_a").weight.as<uint8_t>()[77], 0);
}

TEST(InspectCheckpoint, ReportsErrorsAndForeignChecks) {
  EXPECT_FALSE(inspect_checkpoint("/nonexistent").ok);
  const fs::path tiny = fs::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41";
  const auto with = [&](CheckStatus status) {
    return inspect_checkpoint(
        tiny, {.more_checks = [&](const CheckpointFacts& facts) {
          return std::vector<CheckLine>{
              {"vocabulary " + std::to_string(facts.vocab_size), status, "detail"}};
        }});
  };
  EXPECT_TRUE(with(CheckStatus::kPass).ok);
  const InspectReport failed = with(CheckStatus::kFail);
  EXPECT_FALSE(failed.ok);
  EXPECT_NE(failed.text.find("FAIL vocabulary 4096: detail"), std::string::npos) << failed.text;
}

}  // namespace
}  // namespace deepinfer::checkpoint
