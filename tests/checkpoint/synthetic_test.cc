#include "checkpoint/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "deepinfer/checkpoint.h"
#include "deepinfer/error.h"
#include "temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

std::vector<uint8_t> bytes_of(const TensorView& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.data());
  return {bytes, bytes + tensor.num_bytes()};
}

TEST(SyntheticCheckpoint, EqualsTheFilesThatSynthWrites) {
  const TemporaryDirectory directory;
  synthesize_checkpoint({.preset = "nano", .directory = directory.path() / "nano"});
  const auto files = Checkpoint::open(directory.path() / "nano");
  const auto memory = Checkpoint::open("synth:nano");
  EXPECT_EQ(files->engram_token_map(), memory->engram_token_map());
  for_each_tensor(files->config(), [&](const ExpectedTensor& tensor) {
    EXPECT_EQ(bytes_of(files->tensor(tensor.name)), bytes_of(memory->tensor(tensor.name)))
        << tensor.name;
  });
}

TEST(SyntheticCheckpoint, MakesReleasedTensorsAgain) {
  const auto memory = Checkpoint::open("synth:nano");
  const std::vector<uint8_t> before = bytes_of(memory->tensor("embed.weight"));
  memory->release("embed.weight");
  EXPECT_EQ(before, bytes_of(memory->tensor("embed.weight")));
}

TEST(SyntheticCheckpoint, FollowsTheOverrides) {
  const ModelConfig config = synthetic_config("synth:flash-slice,layers=3,experts=8");
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_experts, 8);
  EXPECT_LT(synthetic_config("synth:flash,engram=small").engram_vocab_size,
            preset_config("flash", {}).engram_vocab_size);
}

TEST(SyntheticCheckpoint, RefusesBadSpecifications) {
  for (const char* spec :
       {"synth:", "synth:mega", "synth:nano,layers", "synth:nano,layers=", "synth:nano,layers=1x",
        "synth:nano,layers=-1", "synth:nano,engram=huge", "synth:nano,=3", "synth:nano,x=1",
        "synth:nano,layers=99999999999999999999", "synth:nano,,"}) {
    EXPECT_THROW(Checkpoint::open(spec), Error) << spec;
  }
}

}  // namespace
}  // namespace deepinfer::checkpoint
