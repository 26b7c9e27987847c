#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/tier.h"

namespace deepinfer::cache {

/// Entries in append-only segment files, DIRECTORY/<identity>/segment-<number>. Each record has a
/// header with its key and checksums of header and content; what does not fit its checksum is a
/// miss and is marked as dropped in the file, so nobody tries it again. A torn tail (kill -9, full
/// disk) ends at the last whole record. Whole segments go, oldest first, to keep the bound; what is
/// still asked for in the oldest ones is copied to the newest. Other identities' folders are
/// neither read nor touched. Files of hostile content end in misses.
class DiskTier final : public Tier {
 public:
  struct Options {
    std::filesystem::path directory;  // made if it is not there
    std::string identity = {};        // numerics id, checkpoint, geometry: other entries do not fit
    int64_t max_bytes = 0;            // of all segments
    int64_t max_entry_bytes = 0;      // larger records are damaged ones
    int64_t segment_bytes = 0;        // 0: an eighth of max_bytes, at most 256 MiB
    /// How files are written and read, for tests of faults.
    std::function<ssize_t(int, const void*, size_t, off_t)> write = {};
    std::function<ssize_t(int, void*, size_t, off_t)> read = {};
  };
  /// Opens or makes the folder and reads what it holds. Errors: kInvalidArgument (another process
  /// has it), kIo (it cannot be made, opened or locked).
  explicit DiskTier(Options options);
  ~DiskTier() override;

  bool contains(const TierKey& key) const override;
  TierBytes get(const TierKey& key) override;
  void put(const TierKey& key, const TierBytes& bytes) override;
  void flush() override;
  int64_t num_bytes() const override { return num_bytes_; }
  int64_t num_entries() const;
  /// Records that did not fit their checksums or could not be read. Any thread.
  int64_t num_bad() const { return num_bad_; }
  /// Entries that could not be written. Any thread.
  int64_t num_failed_writes() const { return num_failed_writes_; }

 private:
  struct Segment {
    int fd = -1;
    std::filesystem::path path;
    int64_t size = 0;
    std::vector<TierKey> keys;  // of its records, dropped ones and moved ones included
  };
  struct Location {
    uint64_t segment = 0;
    int64_t offset = 0;  // of the record's header
    int64_t size = 0;    // of the content
  };

  void lock_folder();
  void open_segments();
  /// Reads the records of a segment file; false if it is not one of ours.
  bool scan(uint64_t number, Segment& segment);
  bool append(const TierKey& key, std::span<const std::byte> bytes);
  /// Makes room for a record of so many bytes: another segment, fewer old ones.
  bool make_room(int64_t record_bytes);
  bool begin_segment();
  void remove_oldest_segment();
  void report_bad(const std::filesystem::path& path, const char* what);
  void drop(const TierKey& key, const Location& location);
  std::optional<Location> find(const TierKey& key) const;
  bool is_old(uint64_t segment) const;
  bool write_all(int fd, std::span<const std::byte> bytes, int64_t offset);
  bool read_all(int fd, std::span<std::byte> bytes, int64_t offset);

  Options options_;
  Sha256Digest identity_;
  std::filesystem::path folder_;
  int lock_fd_ = -1;
  std::map<uint64_t, Segment> segments_;  // by number; the last one is written to
  mutable std::mutex mutex_;              // guards index_
  std::unordered_map<TierKey, Location, TierKeyHash> index_;
  // Counters that other threads read; relaxed, nothing else hangs on them.
  std::atomic<int64_t> num_bytes_ = 0;
  std::atomic<int64_t> num_bad_ = 0;
  std::atomic<int64_t> num_failed_writes_ = 0;
};

}  // namespace deepinfer::cache
