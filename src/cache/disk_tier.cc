#include "cache/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace deepinfer::cache {
namespace {

constexpr std::array<char, 8> kSegmentMagic = {'D', 'I', 'C', 'A', 'C', 'H', 'E', '1'};
constexpr uint32_t kRecordMagic = 0x43455249;
constexpr std::string_view kSegmentPrefix = "segment-";
constexpr int64_t kMaxSegmentBytes = int64_t{256} << 20;

/// The first bytes of a segment file. Numbers are little-endian, as on every machine that we run
/// on; another byte order would not fit the checksum.
struct SegmentHeader {
  std::array<char, 8> magic = kSegmentMagic;
  Sha256Digest identity{};
  uint64_t number = 0;
  uint64_t checksum = 0;  // of all before it
};
static_assert(sizeof(SegmentHeader) == 56);

struct RecordHeader {
  uint32_t is_live = 1;  // the one field that changes: 0 when the record was found damaged
  uint32_t magic = kRecordMagic;
  uint64_t size = 0;  // of the content that follows
  TierKey key{};
  uint64_t content_checksum = 0;
  uint64_t checksum = 0;  // of magic to content_checksum
};
static_assert(sizeof(RecordHeader) == 64);

template <typename Header>
std::span<std::byte> bytes_of(Header& header) {
  return std::as_writable_bytes(std::span(&header, 1));
}

uint64_t checksum_of(SegmentHeader& header) {
  return hash64(bytes_of(header).first(offsetof(SegmentHeader, checksum)));
}
uint64_t checksum_of(RecordHeader& header) {
  constexpr size_t kBegin = offsetof(RecordHeader, magic);
  return hash64(bytes_of(header).subspan(kBegin, offsetof(RecordHeader, checksum) - kBegin));
}
/// Depends on the key, so that contents cannot change places.
uint64_t checksum_of(const TierKey& key, std::span<const std::byte> content) {
  return hash64(content, hash64(key));
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

/// The number of a segment's file name; nothing for other names.
std::optional<uint64_t> number_of(const std::string& name) {
  if (!name.starts_with(kSegmentPrefix)) return std::nullopt;
  const char* begin = name.data() + kSegmentPrefix.size();
  const char* end = name.data() + name.size();
  uint64_t number = 0;
  const auto [last, error] = std::from_chars(begin, end, number, 16);
  if (error != std::errc() || last != end) return std::nullopt;
  return number;
}

}  // namespace

DiskTier::DiskTier(Options options) : options_(std::move(options)) {
  if (!options_.write) options_.write = ::pwrite;
  if (!options_.read) options_.read = ::pread;
  if (options_.segment_bytes == 0) {
    options_.segment_bytes = std::min(options_.max_bytes / 8, kMaxSegmentBytes);
  }
  identity_ = Sha256().add(std::as_bytes(std::span(options_.identity))).finish();
  folder_ = options_.directory / hex(std::span(identity_).first(16));
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  // Cached prompts are private: nobody else may read the folder.
  if (!error && ::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    fail(ErrorCode::kIo, "{}: cannot make the cache directory: {}", options_.directory.string(),
         error.message());
  }
  lock_folder();
  open_segments();
}

DiskTier::~DiskTier() {
  DiskTier::flush();
  for (const auto& [number, segment] : segments_) ::close(segment.fd);
  ::close(lock_fd_);
}

void DiskTier::lock_folder() {
  const std::filesystem::path path = folder_ / "lock";
  lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (lock_fd_ >= 0 && ::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (lock_fd_ >= 0) ::close(lock_fd_);
  if (error == EWOULDBLOCK) {
    fail(ErrorCode::kInvalidArgument,
         "{}: another process uses this cache directory for the same model: stop it, or give "
         "another --cache-dir",
         options_.directory.string());
  }
  fail(ErrorCode::kIo, "{}: cannot lock: {}", path.string(),
       std::generic_category().message(error));
}

void DiskTier::open_segments() {
  std::error_code error;
  std::vector<uint64_t> numbers;
  for (auto entry = std::filesystem::directory_iterator(folder_, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (const auto number = number_of(entry->path().filename().string())) {
      numbers.push_back(*number);
    }
  }
  std::ranges::sort(numbers);
  for (const uint64_t number : numbers) {
    Segment segment;
    segment.path = folder_ / fmt::format("{}{:016x}", kSegmentPrefix, number);
    segment.fd = ::open(segment.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (segment.fd < 0) continue;
    if (!scan(number, segment)) {
      report_bad(segment.path, "not a segment of this cache, removed");
      ::close(segment.fd);
      ::unlink(segment.path.c_str());
      continue;
    }
    num_bytes_ += segment.size;
    segments_.emplace(number, std::move(segment));
  }
  while (num_bytes_ > options_.max_bytes && !segments_.empty()) remove_oldest_segment();
}

bool DiskTier::scan(uint64_t number, Segment& segment) {
  struct stat status{};
  SegmentHeader header;
  if (::fstat(segment.fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      !read_all(segment.fd, bytes_of(header), 0) || header.magic != kSegmentMagic ||
      header.identity != identity_ || header.number != number ||
      header.checksum != checksum_of(header)) {
    return false;
  }
  const int64_t end = status.st_size;
  int64_t at = sizeof(SegmentHeader);
  RecordHeader record;
  constexpr auto kHeader = static_cast<int64_t>(sizeof(RecordHeader));
  while (end - at >= kHeader && read_all(segment.fd, bytes_of(record), at)) {
    const auto size = static_cast<int64_t>(record.size);
    if (record.magic != kRecordMagic || record.checksum != checksum_of(record) || size < 0 ||
        size > options_.max_entry_bytes || size > end - at - kHeader) {
      break;
    }
    if (record.is_live != 0) {
      index_[record.key] = {.segment = number, .offset = at, .size = size};
      segment.keys.push_back(record.key);
    }
    at += kHeader + size;
  }
  if (at < end) {
    log_info("{}: {} bytes after the last whole record dropped", segment.path.string(), end - at);
    if (::ftruncate(segment.fd, at) != 0) return false;
  }
  segment.size = at;
  return true;
}

bool DiskTier::contains(const TierKey& key) const {
  return find(key).has_value();
}

int64_t DiskTier::num_entries() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(index_.size());
}

std::optional<DiskTier::Location> DiskTier::find(const TierKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

TierBytes DiskTier::get(const TierKey& key) {
  const std::optional<Location> location = find(key);
  if (!location) return nullptr;
  const int fd = segments_.at(location->segment).fd;
  RecordHeader record;
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(location->size));
  const auto content_at = location->offset + static_cast<int64_t>(sizeof(RecordHeader));
  if (!read_all(fd, bytes_of(record), location->offset) || record.key != key ||
      !read_all(fd, *bytes, content_at) || record.content_checksum != checksum_of(key, *bytes)) {
    drop(key, *location);
    return nullptr;
  }
  // What is still asked for outlives the oldest segments.
  if (is_old(location->segment)) append(key, *bytes);
  return bytes;
}

bool DiskTier::is_old(uint64_t segment) const {
  const auto age = std::distance(segments_.begin(), segments_.find(segment));
  return segments_.size() >= 4 && age < static_cast<std::ptrdiff_t>(segments_.size() / 4);
}

void DiskTier::report_bad(const std::filesystem::path& path, const char* what) {
  // A damaged disk has many of them.
  if (num_bad_++ == 0) log_warning("{}: {}; further ones are only counted", path.string(), what);
}

void DiskTier::drop(const TierKey& key, const Location& location) {
  report_bad(segments_.at(location.segment).path, "a damaged entry dropped");
  {
    const std::lock_guard lock(mutex_);
    index_.erase(key);
  }
  const uint32_t dead = 0;
  write_all(segments_.at(location.segment).fd, std::as_bytes(std::span(&dead, 1)),
            location.offset + static_cast<int64_t>(offsetof(RecordHeader, is_live)));
}

void DiskTier::put(const TierKey& key, const TierBytes& bytes) {
  if (static_cast<int64_t>(bytes->size()) > options_.max_entry_bytes || contains(key)) return;
  // A full disk may have room again without the oldest segment.
  if (append(key, *bytes)) return;
  if (segments_.size() > 1) {
    remove_oldest_segment();
    if (append(key, *bytes)) return;
  }
  if (num_failed_writes_++ == 0) {
    log_warning("{}: entries cannot be written: {}", folder_.string(),
                std::generic_category().message(errno));
  }
}

bool DiskTier::append(const TierKey& key, std::span<const std::byte> bytes) {
  const auto record_bytes = static_cast<int64_t>(sizeof(RecordHeader) + bytes.size());
  if (!make_room(record_bytes)) return false;
  RecordHeader header;
  header.size = bytes.size();
  header.key = key;
  header.content_checksum = checksum_of(key, bytes);
  header.checksum = checksum_of(header);
  Segment& segment = segments_.rbegin()->second;
  const int64_t offset = segment.size;
  // The header comes last: without it the record is not there.
  if (!write_all(segment.fd, bytes, offset + static_cast<int64_t>(sizeof(header))) ||
      !write_all(segment.fd, bytes_of(header), offset)) {
    const int error = errno;
    static_cast<void>(::ftruncate(segment.fd, offset) == 0);  // a torn tail is ignored anyway
    errno = error;
    return false;
  }
  segment.size += record_bytes;
  segment.keys.push_back(key);
  num_bytes_ += record_bytes;
  const std::lock_guard lock(mutex_);
  index_[key] = {.segment = segments_.rbegin()->first,
                 .offset = offset,
                 .size = static_cast<int64_t>(bytes.size())};
  return true;
}

bool DiskTier::make_room(int64_t record_bytes) {
  const auto header = static_cast<int64_t>(sizeof(SegmentHeader));
  if (record_bytes + header > options_.max_bytes) return false;
  const bool is_full = segments_.empty() || segments_.rbegin()->second.size + record_bytes >
                                                std::max(options_.segment_bytes, record_bytes);
  const int64_t needed = record_bytes + (is_full ? header : 0);
  while (num_bytes_ + needed > options_.max_bytes && !segments_.empty()) remove_oldest_segment();
  return (is_full || segments_.empty()) ? begin_segment() : true;
}

bool DiskTier::begin_segment() {
  if (!segments_.empty()) ::fdatasync(segments_.rbegin()->second.fd);
  SegmentHeader header;
  header.identity = identity_;
  header.number = segments_.empty() ? 0 : segments_.rbegin()->first + 1;
  header.checksum = checksum_of(header);
  Segment segment;
  segment.path = folder_ / fmt::format("{}{:016x}", kSegmentPrefix, header.number);
  ::unlink(segment.path.c_str());  // whatever has that name is none of ours
  segment.fd =
      ::open(segment.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (segment.fd < 0) return false;
  if (!write_all(segment.fd, bytes_of(header), 0)) {
    const int error = errno;
    ::close(segment.fd);
    ::unlink(segment.path.c_str());
    errno = error;
    return false;
  }
  segment.size = sizeof(header);
  num_bytes_ += segment.size;
  segments_.emplace(header.number, std::move(segment));
  return true;
}

void DiskTier::remove_oldest_segment() {
  const auto oldest = segments_.begin();
  {
    const std::lock_guard lock(mutex_);
    for (const TierKey& key : oldest->second.keys) {
      const auto found = index_.find(key);
      if (found != index_.end() && found->second.segment == oldest->first) index_.erase(found);
    }
  }
  ::close(oldest->second.fd);
  ::unlink(oldest->second.path.c_str());
  num_bytes_ -= oldest->second.size;
  segments_.erase(oldest);
}

void DiskTier::flush() {
  if (!segments_.empty()) ::fdatasync(segments_.rbegin()->second.fd);
}

bool DiskTier::write_all(int fd, std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = options_.write(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return true;
}

bool DiskTier::read_all(int fd, std::span<std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = options_.read(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return true;
}

}  // namespace deepinfer::cache
