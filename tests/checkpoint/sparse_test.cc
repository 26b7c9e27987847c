// The release at full size, as sparse files. A program of its own: it measures its peak memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <fstream>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "deepinfer/checkpoint.h"
#include "temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kIsSanitized = true;  // many times as slow, with memory of its own
#else
constexpr bool kIsSanitized = false;
#endif

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST(SparseRelease, OpensQuicklyInLittleMemory) {
  const TemporaryDirectory directory;
  try {
    synthesize_checkpoint({.preset = "flash", .directory = directory / "flash", .sparse = true});
  } catch (const Error& error) {
    // Files of 100 GB need a file system that has them.
    if (error.code() == ErrorCode::kIo) GTEST_SKIP() << error.what();
    throw;
  }
  const double start = cpu_seconds();
  EXPECT_TRUE(inspect_checkpoint(directory / "flash").ok);
  const auto checkpoint = Checkpoint::open(directory / "flash");
  // Processor time does not depend on what else runs; nothing here waits for a disk. About 2 s.
  if (!kIsSanitized) {
    EXPECT_LT(cpu_seconds() - start, 20);
    EXPECT_LT(peak_resident_bytes(), int64_t{1} << 30);
  }

  int64_t tensors = 0;
  int64_t bytes = 0;
  for (const SafetensorsFile& shard : checkpoint->shards()) {
    tensors += static_cast<int64_t>(shard.entries().size());
    for (const HeaderEntry& entry : shard.entries()) bytes += entry.num_bytes();
  }
  EXPECT_EQ(checkpoint->shards().size(), 48U);
  EXPECT_EQ(tensors, 96085);
  EXPECT_EQ(bytes, 510'286'023'000);

  // A byte far beyond 2^32, through file and view.
  const QuantView table = checkpoint->weight("layers.14.engram.embed");
  const int64_t row = table.rows() - 1;
  const SafetensorsFile& shard = checkpoint->shards().back();
  for (const HeaderEntry& entry : shard.entries()) {
    if (entry.name != "layers.14.engram.embed.weight") continue;
    std::fstream stream(shard.path(), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_GT(entry.begin + row * 256 + 255, int64_t{1} << 36);
    stream.seekp(entry.begin + row * 256 + 255);
    stream.put('\x41');
  }
  EXPECT_EQ(table.weight.row<uint8_t>(row)[255], 0x41);
  EXPECT_EQ(table.weight.row<uint8_t>(row)[254], 0);
  EXPECT_EQ(table.scale.row<uint8_t>(row)[7], 0);
}

}  // namespace
}  // namespace deepinfer::checkpoint
