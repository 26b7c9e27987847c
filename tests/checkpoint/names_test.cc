#include "checkpoint/names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "checkpoint/memory_plan.h"
#include "checkpoint/presets.h"

namespace deepinfer::checkpoint {
namespace {

/// The published totals of the release (spec/checkpoint.md §2.1, §2.4).
class ReleaseNames : public testing::Test {
 protected:
  void SetUp() override {
    for_each_tensor(release_config(), [this](const ExpectedTensor& tensor) {
      names_.insert(tensor.name);
      ++count_;
      bytes_by_dtype_[std::string(to_string(tensor.dtype))] += tensor.num_bytes();
      ++count_by_shard_[tensor.shard + 1];
      bytes_by_shard_[tensor.shard + 1] += tensor.num_bytes();
    });
  }

  std::set<std::string> names_;
  int64_t count_ = 0;
  std::map<std::string, int64_t> bytes_by_dtype_;
  std::map<int, int64_t> count_by_shard_;
  std::map<int, int64_t> bytes_by_shard_;
};

TEST_F(ReleaseNames, AreCompleteAndUnique) {
  EXPECT_EQ(count_, 96085);
  EXPECT_EQ(names_.size(), 96085U);
  for (const char* name :
       {"embed.weight", "image_newline", "layers.36.attn.indexer.weights_proj.weight",
        "layers.14.engram.embed.scale", "layers.39.ffn.experts.383.w2.scale",
        "mtp.2.markov_head.head.weight", "vision.blocks.31.attn.wqkv.bias", "aligner.w2.bias"}) {
    EXPECT_TRUE(names_.contains(name)) << name;
  }
  EXPECT_FALSE(names_.contains("layers.20.attn.compressor.wgate.weight"));
  EXPECT_FALSE(names_.contains("layers.24.attn.indexer.wk.weight"));
}

TEST_F(ReleaseNames, SplitByDtypeAsPublished) {
  const std::map<std::string, int64_t> expected = {{"I8", 278'585'671'680},
                                                   {"F8_E4M3", 204'015'223'296},
                                                   {"F8_E8M0", 23'563'015'184},
                                                   {"BF16", 3'952'883'712},
                                                   {"F32", 169'229'128}};
  EXPECT_EQ(bytes_by_dtype_, expected);
}

TEST_F(ReleaseNames, FillShardsAsPublished) {
  EXPECT_EQ(num_shards(release_config()), 48);
  EXPECT_EQ(bytes_by_shard_.size(), 48U);
  const std::map<int, int64_t> expected = {{1, 970'506'240},      {2, 1'323'857'920},
                                           {3, 7'389'500'888},    {5, 7'389'500'888 + 16'193'792},
                                           {23, 7'400'451'800},   {27, 7'395'076'568},
                                           {43, 1'323'837'440},   {44, 2'652'643'800},
                                           {45, 2'573'913'560},   {46, 2'706'317'272},
                                           {47, 101'535'150'272}, {48, 101'537'925'968}};
  for (const auto& [shard, bytes] : expected) EXPECT_EQ(bytes_by_shard_[shard], bytes) << shard;
  EXPECT_EQ(count_by_shard_[3], 2334);
  EXPECT_EQ(count_by_shard_[5], 2342);
  EXPECT_EQ(count_by_shard_[23], 2341);
  EXPECT_EQ(count_by_shard_[27], 2337);
  EXPECT_EQ(count_by_shard_[44], 801);
  EXPECT_EQ(count_by_shard_[46], 802);
  EXPECT_EQ(count_by_shard_[47], 6);
}

TEST(MemoryPlan, OfReleaseMatchesPublishedSizes) {
  const MemoryPlan plan = plan_memory(release_config());
  EXPECT_EQ(plan.total.bytes, 510'286'023'000);
  const auto bytes = [&](TensorKind kind) { return plan.kinds[static_cast<size_t>(kind)].bytes; };
  EXPECT_EQ(bytes(TensorKind::kRoutedExperts), 288'777'830'400);
  EXPECT_EQ(bytes(TensorKind::kEngramTables), 202'758'032'400);
  EXPECT_EQ(bytes(TensorKind::kEngram) + bytes(TensorKind::kEngramTables), 203'073'076'240);
  EXPECT_EQ(bytes(TensorKind::kDraftExperts), 7'219'445'760);
  EXPECT_EQ(bytes(TensorKind::kDraft), 713'428'872);
  EXPECT_EQ(bytes(TensorKind::kAttention), 5'151'556'608);
  EXPECT_EQ(bytes(TensorKind::kSharedExperts), 1'416'960'000);
  EXPECT_EQ(bytes(TensorKind::kEmbeddings), 2'647'664'640);
  EXPECT_EQ(bytes(TensorKind::kVision), 970'536'960);
  EXPECT_EQ(bytes(TensorKind::kNormsAndStreams), 158'114'240);
  EXPECT_EQ(bytes(TensorKind::kRouters), 157'409'280);
  EXPECT_EQ(plan.kv_bytes_per_token, 890);
  EXPECT_EQ(plan.ring_row_bytes, 528 + 8);
  EXPECT_EQ(plan.ring_bytes, int64_t{536} * 144 * 40 + int64_t{3} * 8 * 2 * 512 * 4);
  EXPECT_EQ(plan.snapshot_unit_bytes, int64_t{528} * 144 * 21);
  EXPECT_EQ(plan.mapped_bytes + plan.resident_bytes, plan.total.bytes);
}

TEST(CanonicalName, FoldsOlderSpellings) {
  EXPECT_EQ(canonical_name("model.layers.3.self_attn.wq_a.weight_scale_inv"),
            "layers.3.attn.wq_a.scale");
  EXPECT_EQ(canonical_name("layers.3.mlp.gate.e_score_correction_bias"), "layers.3.ffn.gate.bias");
  EXPECT_EQ(canonical_name("lm_head.weight"), "head.weight");
  EXPECT_EQ(canonical_name("model.embed_tokens.weight"), "embed.weight");
  EXPECT_EQ(canonical_name("vision.blocks.0.mlp.w1.weight"), "vision.blocks.0.mlp.w1.weight");
  EXPECT_EQ(canonical_name("layers.1.engram.embed.scale"), "layers.1.engram.embed.scale");
  EXPECT_EQ(canonical_name(""), "");
  EXPECT_EQ(canonical_name("model."), "");
}

}  // namespace
}  // namespace deepinfer::checkpoint
