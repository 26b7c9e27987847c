#include "cache/disk_tier.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/checkpoint/temporary_directory.h"

namespace deepinfer::cache {
namespace {

namespace fs = std::filesystem;

TierKey key_of(int64_t id) {
  return Sha256().add(std::as_bytes(std::span(&id, 1))).finish();
}

/// The content of entry `id`: its size and bytes follow from the id.
TierBytes content_of(int64_t id) {
  std::mt19937_64 random(static_cast<uint64_t>(id));
  std::vector<std::byte> bytes(900 + random() % 200);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

class DiskTierTest : public testing::Test {
 protected:
  DiskTier::Options options(const std::string& identity = "a") const {
    return {.directory = directory_.path(),
            .identity = identity,
            .max_bytes = 40'000,
            .max_entry_bytes = 2000,
            .segment_bytes = 8000};
  }
  static void put(Tier& tier, int64_t begin, int64_t end) {
    for (int64_t id = begin; id < end; ++id) tier.put(key_of(id), content_of(id));
  }
  /// How many of the entries are there; what is there must be right.
  static int64_t count(Tier& tier, int64_t begin, int64_t end) {
    int64_t found = 0;
    for (int64_t id = begin; id < end; ++id) {
      const TierBytes bytes = tier.get(key_of(id));
      if (bytes == nullptr) continue;
      EXPECT_TRUE(*bytes == *content_of(id)) << "entry " << id;
      ++found;
    }
    return found;
  }
  std::vector<fs::path> segments() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path())) {
      if (entry.path().filename().string().starts_with("segment-")) paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    return paths;
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  checkpoint::TemporaryDirectory directory_;
};

TEST_F(DiskTierTest, KeepsEntriesAcrossRestarts) {
  {
    DiskTier tier(options());
    put(tier, 0, 10);
    EXPECT_EQ(count(tier, 0, 20), 10);
  }
  DiskTier tier(options());
  EXPECT_EQ(tier.num_entries(), 10);
  EXPECT_TRUE(tier.contains(key_of(9)));
  EXPECT_FALSE(tier.contains(key_of(10)));
  put(tier, 5, 15);
  EXPECT_EQ(tier.num_entries(), 15);
  EXPECT_EQ(count(tier, 0, 20), 15);
}

TEST_F(DiskTierTest, StaysWithinItsBoundAndDropsTheOldest) {
  DiskTier tier(options());
  for (int64_t id = 0; id < 300; ++id) {
    put(tier, id, id + 1);
    EXPECT_TRUE(tier.get(key_of(0)) != nullptr) << id;  // still asked for
    ASSERT_LE(tier.num_bytes(), 40'000);
  }
  int64_t on_disk = 0;
  for (const fs::path& path : segments()) on_disk += static_cast<int64_t>(fs::file_size(path));
  EXPECT_EQ(on_disk, tier.num_bytes());
  EXPECT_EQ(count(tier, 290, 300), 10);
  EXPECT_EQ(count(tier, 1, 200), 0);
  const int64_t entries = tier.num_entries();
  EXPECT_GE(entries, 20);
}

TEST_F(DiskTierTest, ASmallerBoundRemovesSegments) {
  {
    DiskTier tier(options());
    put(tier, 0, 30);
  }
  DiskTier::Options small = options();
  small.max_bytes = 10'000;
  const DiskTier tier(small);
  EXPECT_LE(tier.num_bytes(), 10'000);
}

TEST_F(DiskTierTest, AnotherIdentityIsNeverRead) {
  {
    DiskTier tier(options("a"));
    put(tier, 0, 5);
  }
  DiskTier other(options("b"));
  EXPECT_EQ(count(other, 0, 5), 0);
  DiskTier same(options("a"));
  EXPECT_EQ(count(same, 0, 5), 5);
}

TEST_F(DiskTierTest, ASecondUserIsRefused) {
  const DiskTier tier(options());
  try {
    const DiskTier second(options());
    FAIL() << "opened twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("another process"), std::string::npos);
  }
}

TEST_F(DiskTierTest, AFolderThatCannotBeMadeIsRefused) {
  write(directory_ / "file", "");
  DiskTier::Options bad = options();
  bad.directory = directory_ / "file";
  EXPECT_THROW(DiskTier{bad}, Error);
}

TEST_F(DiskTierTest, ADamagedEntryIsAMissOnce) {
  {
    DiskTier tier(options());
    put(tier, 0, 3);
  }
  std::string bytes = read(segments()[0]);
  bytes[56 + 64 + 100] ^= 4;  // of the first entry's content
  write(segments()[0], bytes);
  {
    DiskTier tier(options());
    EXPECT_EQ(tier.num_entries(), 3);
    EXPECT_EQ(count(tier, 0, 3), 2);
    EXPECT_EQ(tier.num_bad(), 1);
    EXPECT_FALSE(tier.contains(key_of(0)));
  }
  DiskTier tier(options());
  EXPECT_EQ(tier.num_entries(), 2);  // nobody tries it again
  EXPECT_EQ(tier.num_bad(), 0);
  put(tier, 0, 1);
  EXPECT_EQ(count(tier, 0, 3), 3);
}

TEST_F(DiskTierTest, ATornTailEndsAtTheLastWholeRecord) {
  {
    DiskTier tier(options());
    put(tier, 0, 5);
  }
  const std::string bytes = read(segments()[0]);
  for (const size_t size : {bytes.size() / 2, bytes.size() - 1, size_t{60}, size_t{56}}) {
    write(segments()[0], bytes.substr(0, size));
    DiskTier tier(options());
    const int64_t left = count(tier, 0, 5);
    EXPECT_EQ(left, tier.num_entries());
    EXPECT_EQ(left == 0, size < 500) << size;
    put(tier, 0, 5);
    EXPECT_EQ(count(tier, 0, 5), 5);
  }
}

TEST_F(DiskTierTest, FilesThatAreNotOursAreRemovedUnread) {
  {
    DiskTier tier(options());
    put(tier, 0, 16);
  }
  const std::vector<fs::path> paths = segments();
  ASSERT_GE(paths.size(), 3U);
  const std::string first = read(paths[0]);
  write(paths[0], read(paths[1]));  // swapped
  write(paths[1], first);
  write(paths[2], "");
  const fs::path folder = paths[0].parent_path();
  write(folder / "segment-00000000000000ff", std::string(1000, 'x'));
  write(directory_ / "outside", "precious");
  fs::create_symlink(directory_ / "outside", folder / "segment-00000000000000fe");
  ASSERT_EQ(::mkfifo((folder / "segment-00000000000000fd").c_str(), 0600), 0);
  fs::create_directory(folder / "segment-00000000000000fc");
  DiskTier tier(options());
  EXPECT_GE(tier.num_bad(), 4);
  EXPECT_EQ(count(tier, 0, 16), tier.num_entries());
  put(tier, 0, 16);
  EXPECT_EQ(count(tier, 0, 16), 16);
  EXPECT_EQ(read(directory_ / "outside"), "precious");
}

TEST_F(DiskTierTest, RandomDamageNeverGivesWrongContent) {
  constexpr unsigned kSeed = 8;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    {
      DiskTier tier(options());
      put(tier, 0, 12);
    }
    for (const fs::path& path : segments()) {
      std::string bytes = read(path);
      for (int flips = 0; flips < 3 && !bytes.empty(); ++flips) {
        // Half of the damage hits headers.
        const size_t range = random() % 2 == 0 ? std::min<size_t>(bytes.size(), 200) : bytes.size();
        bytes[random() % range] = static_cast<char>(random());
      }
      if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
      write(path, bytes);
    }
    DiskTier tier(options());
    count(tier, 0, 12);
    EXPECT_EQ(count(tier, 0, 12), tier.num_entries());
  }
}

TEST_F(DiskTierTest, AFullDiskLosesNothingThatWasWritten) {
  DiskTier::Options full = options();
  int64_t room = 6000;
  full.write = [&room](int fd, const void* bytes, size_t size, off_t offset) -> ssize_t {
    const auto count = std::min(room, static_cast<int64_t>(size));
    if (count == 0) {
      errno = ENOSPC;
      return -1;
    }
    room -= count;
    return ::pwrite(fd, bytes, static_cast<size_t>(count), offset);
  };
  {
    DiskTier tier(full);
    put(tier, 0, 10);
    EXPECT_GT(tier.num_failed_writes(), 0);
    EXPECT_EQ(count(tier, 0, 10), tier.num_entries());
    EXPECT_GE(tier.num_entries(), 4);
    room = 100'000;
    put(tier, 0, 10);
    EXPECT_EQ(count(tier, 0, 10), 10);
  }
  DiskTier tier(options());
  EXPECT_EQ(count(tier, 0, 10), 10);
}

TEST_F(DiskTierTest, AReadErrorIsAMiss) {
  DiskTier::Options broken = options();
  bool fails = false;
  broken.read = [&fails](int fd, void* bytes, size_t size, off_t offset) -> ssize_t {
    if (!fails) return ::pread(fd, bytes, size, offset);
    errno = EIO;
    return -1;
  };
  DiskTier tier(broken);
  put(tier, 0, 3);
  fails = true;
  EXPECT_EQ(tier.get(key_of(1)), nullptr);
  fails = false;
  EXPECT_FALSE(tier.contains(key_of(1)));
  EXPECT_EQ(count(tier, 0, 3), 2);
}

TEST_F(DiskTierTest, SurvivesKill9DuringWrites) {
  for (int round = 0; round < 5; ++round) {
    const DiskTier::Options fresh = options(std::to_string(round));
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DiskTier tier(fresh);
      for (int64_t id = 0;; ++id) {
        tier.put(key_of(id), content_of(id));
        if (::write(pipe[1], &id, sizeof(id)) < 0) ::_exit(1);
      }
    }
    int64_t written = 0;
    for (int i = 0; i < 30 + 7 * round; ++i) {
      ASSERT_EQ(::read(pipe[0], &written, sizeof(written)), static_cast<ssize_t>(sizeof(written)));
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(pipe[1]);
    int64_t later = 0;
    while (::read(pipe[0], &later, sizeof(later)) == static_cast<ssize_t>(sizeof(later))) {
      written = later;
    }
    ::close(pipe[0]);
    DiskTier tier(fresh);
    // All that fits the bound and was reported is there.
    EXPECT_EQ(count(tier, written - 15, written + 1), 16) << "round " << round;
  }
}

}  // namespace
}  // namespace deepinfer::cache
