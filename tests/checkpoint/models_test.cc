// The checkpoints of the repository, whole.
#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer::checkpoint {
namespace {

const std::filesystem::path kSource = DEEPINFER_SOURCE_DIR;

TEST(Checkpoint, OpensTinyModelQuickly) {
  const std::clock_t start = std::clock();
  const auto checkpoint = Checkpoint::open(kSource / "models/tiny-v41");
  // Processor time, so that other work on the machine does not matter. About 0.1 s; sanitizers take
  // longer.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1);
  EXPECT_TRUE(checkpoint->ignored_tensors().empty());

  const QuantView projection = checkpoint->weight("layers.0.attn.wq_a");
  EXPECT_EQ(projection.weight.dtype(), DType::kE4M3);
  EXPECT_EQ(projection.rows(), 192);
  EXPECT_EQ(projection.cols(), 384);
  EXPECT_EQ(projection.scale_rows, 32);

  const QuantView expert = checkpoint->weight("layers.7.ffn.experts.31.w2");
  EXPECT_EQ(expert.weight.dtype(), DType::kE2M1x2);
  EXPECT_EQ(expert.cols(), 96);
  EXPECT_EQ(expert.scale_rows, 1);

  const QuantView table = checkpoint->weight("layers.4.engram.embed");
  EXPECT_EQ(table.rows(), 24336);
  EXPECT_EQ(table.scale.shape(), Shape({24336, 2}));
  EXPECT_EQ(table.scale_rows, 1);

  EXPECT_TRUE(checkpoint->weight("head").scale.empty());
  EXPECT_TRUE(checkpoint->contains("mtp.2.norm.weight"));
  EXPECT_FALSE(checkpoint->contains("image_start"));
  ASSERT_TRUE(checkpoint->engram_token_map().has_value());
  EXPECT_EQ(checkpoint->engram_token_map()->size(), 4096U);
  EXPECT_THROW(checkpoint->tensor("absent"), Error);
}

TEST(Checkpoint, OpensNanoModelAndKeepsItsFingerprint) {
  const auto first = Checkpoint::open(kSource / "tests/data/nano-d");
  const auto second = Checkpoint::open(kSource / "tests/data/nano-d");
  EXPECT_EQ(first->fingerprint(), second->fingerprint());
  EXPECT_NE(first->fingerprint(), Checkpoint::open(kSource / "models/tiny-v41")->fingerprint());
  EXPECT_EQ(first->config().window, 64);
  EXPECT_EQ(first->config().swiglu_limit, 2.0F);
  EXPECT_FALSE(first->engram_token_map().has_value());
}

}  // namespace
}  // namespace deepinfer::checkpoint
