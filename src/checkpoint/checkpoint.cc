#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/engram_token_map.h"
#include "checkpoint/names.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/shard_scan.h"
#include "checkpoint/synthetic.h"

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kSmallTableBytes = int64_t{64} << 20;
constexpr int64_t kCheapWeightBytes = int64_t{8} << 30;

/// Tells the kernel how the pages of a mapped tensor are used.
void advise(const TensorView& view, int advice) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(view.data());
  const uintptr_t aligned = begin / page * page;
  const size_t length = begin - aligned + static_cast<size_t>(view.num_bytes());
  // Only a hint: a kernel that refuses it still gives the right bytes.
  ::madvise(reinterpret_cast<void*>(aligned), length, advice);
}

}  // namespace

/// The steps of Checkpoint::open, in the order of run().
class CheckpointLoader {
 public:
  CheckpointLoader(const std::filesystem::path& directory, const OpenOptions& options)
      : options_(options), checkpoint_(new Checkpoint()) {
    checkpoint_->directory_ = directory;
  }

  std::shared_ptr<const Checkpoint> run() {
    checkpoint_->config_ = load_config(checkpoint_->directory_);
    map_shards();
    collect_names();
    match_expected();
    warn_about_ignored();
    verify_and_hash();
    if (!checkpoint_->config_.engram_layers.empty()) {
      checkpoint_->engram_token_map_ =
          read_engram_token_map(checkpoint_->directory_, checkpoint_->config_);
    }
    return std::move(checkpoint_);
  }

 private:
  struct Found {
    size_t shard = 0;
    const HeaderEntry* entry = nullptr;
    bool expected = false;
    TensorKind kind = TensorKind::kEmbeddings;
  };

  std::string file_of(const Found& found) const {
    return checkpoint_->shards_[found.shard].path().string();
  }

  void map_shards() {
    const ShardIndex index = read_shard_index(checkpoint_->directory_);
    checkpoint_->declared_bytes_ = index.total_size;
    for (const std::filesystem::path& path : index.files) {
      checkpoint_->shards_.push_back(SafetensorsFile::open(path));
    }
    for (const ShardIndex::Entry& entry : index.entries) {
      const SafetensorsFile& shard = checkpoint_->shards_[entry.file];
      if (!shard.contains(entry.tensor)) {
        fail(ErrorCode::kInvalidFile,
             "{}: tensor \"{}\": missing from this file although the index names it",
             shard.path().string(), entry.tensor.substr(0, 200));
      }
    }
  }

  /// Indexes every tensor of every shard by canonical name. The index file is not relied on: some
  /// list less than the shards hold.
  void collect_names() {
    for (size_t shard = 0; shard < checkpoint_->shards_.size(); ++shard) {
      for (const HeaderEntry& entry : checkpoint_->shards_[shard].entries()) {
        const Found found{shard, &entry};
        const auto [place, added] = found_.emplace(canonical_name(entry.name), found);
        if (!added) {
          fail(ErrorCode::kInvalidFile, "{}: tensor \"{}\": there is another one, \"{}\" in {}",
               file_of(found), entry.name, place->second.entry->name, file_of(place->second));
        }
      }
    }
  }

  void match_expected() {
    for_each_tensor(checkpoint_->config_, [this](const ExpectedTensor& expected) {
      const auto place = found_.find(expected.name);
      if (place == found_.end()) {
        fail(ErrorCode::kInvalidFile, "{}: tensor \"{}\" ({} {}): missing from all {} files",
             checkpoint_->directory_.string(), expected.name, to_string(expected.dtype),
             expected.shape.to_string(), checkpoint_->shards_.size());
      }
      Found& found = place->second;
      const HeaderEntry& entry = *found.entry;
      if (entry.dtype_name != to_string(expected.dtype) ||
          !std::ranges::equal(entry.shape, expected.shape.dims())) {
        fail(ErrorCode::kInvalidFile,
             "{}: tensor \"{}\": is {} [{}]; the configuration asks for {} {}", file_of(found),
             entry.name, entry.dtype_name, fmt::join(entry.shape, ", "), to_string(expected.dtype),
             expected.shape.to_string());
      }
      const TensorView view = checkpoint_->shards_[found.shard].view(entry);
      found.expected = true;
      found.kind = expected.kind;
      if (expected.kind != TensorKind::kEngramTables) resident_bytes_ += view.num_bytes();
      ++num_expected_;
      // FP4 pairs are stored as I8.
      const TensorView typed(view.data(), expected.dtype, expected.shape);
      if (expected.kind == TensorKind::kEngramTables) {
        advise(typed, MADV_RANDOM);  // gathered row by row: no reading ahead
      }
      checkpoint_->tensors_.emplace(expected.name, typed);
    });
  }

  void warn_about_ignored() {
    constexpr size_t kShown = 5;
    std::string shown;
    for (const auto& [name, found] : found_) {
      if (found.expected) continue;
      std::vector<std::string>& ignored = checkpoint_->ignored_tensors_;
      if (ignored.size() < kShown)
        shown += fmt::format("{}{}", ignored.empty() ? "" : ", ", found.entry->name);
      ignored.push_back(found.entry->name);
    }
    const size_t count = checkpoint_->ignored_tensors_.size();
    if (count == 0) return;
    log_warning("{}: {} unknown tensor{} ignored: {}{}", checkpoint_->directory_.string(), count,
                count == 1 ? "" : "s", shown, count > kShown ? ", …" : "");
  }

  /// Whether open() reads this tensor for NaN. Engram tables are never read as a whole unless that
  /// was asked for: they are most of the checkpoint and gathered row by row.
  bool must_verify(const Found& found) const {
    if (options_.verify_everything) return true;
    if (found.kind == TensorKind::kEngramTables)
      return found.entry->num_bytes() <= kSmallTableBytes;
    return found.entry->dtype == DType::kE8M0 || resident_bytes_ <= kCheapWeightBytes;
  }

  void verify_and_hash() {
    ProgressBar progress(options_.show_progress ? "loading" : "", num_expected_, "tensors");
    std::vector<std::vector<const Found*>> by_shard(checkpoint_->shards_.size());
    uint64_t hash = 0;
    for (const auto& [name, found] : found_) {
      if (!found.expected) continue;
      by_shard[found.shard].push_back(&found);
      const TensorView& view = checkpoint_->tensors_.find(name)->second;
      hash = hash_text(
          fmt::format("{} {} {}", name, to_string(view.dtype()), view.shape().to_string()), hash);
    }
    int64_t done = 0;
    for (size_t shard = 0; shard < by_shard.size(); ++shard) {
      ShardScanner scanner(checkpoint_->shards_[shard].path());
      std::ranges::sort(by_shard[shard], {},
                        [](const Found* found) { return found->entry->begin; });
      for (const Found* const found : by_shard[shard]) {
        if (must_verify(*found)) verify(scanner, *found);
        ++done;
        if (options_.show_progress) progress.update(done);
      }
      hash = hash64({}, hash ^ scanner.sample_hash());
    }
    checkpoint_->fingerprint_ = hash;
  }

  void verify(ShardScanner& scanner, const Found& found) const {
    const HeaderEntry& entry = *found.entry;
    const std::optional<int64_t> position = scanner.find_nan(*entry.dtype, entry.begin, entry.end);
    if (position) {
      fail(ErrorCode::kInvalidFile, "{}: tensor \"{}\": holds a NaN {} at byte {} of its data",
           file_of(found), entry.name, entry.dtype == DType::kE8M0 ? "scale" : "value", *position);
    }
  }

  static uint64_t hash_text(const std::string& text, uint64_t seed) {
    return hash64(std::as_bytes(std::span(text)), seed);
  }

  OpenOptions options_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::map<std::string, Found, std::less<>> found_;  // by canonical name
  int64_t resident_bytes_ = 0;  // of expected tensors outside the Engram tables
  int64_t num_expected_ = 0;
};

std::shared_ptr<const Checkpoint> Checkpoint::open(const std::filesystem::path& directory,
                                                   const OpenOptions& options) {
  if (directory.native().starts_with(kSyntheticPrefix)) return synthetic(directory.native());
  return CheckpointLoader(directory, options).run();
}

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;

TensorView Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  DEEPINFER_CHECK(found != tensors_.end(), "the checkpoint has no tensor \"{}\"", name);
  if (synthetic_ != nullptr) synthetic_->make(name);
  return found->second;
}

void Checkpoint::release(std::string_view name) const {
  if (synthetic_ != nullptr) return synthetic_->release(name);
  // Pages of a file that others map, too, are read again from it.
  advise(tensor(name), MADV_DONTNEED);
}

QuantView Checkpoint::weight(std::string_view name) const {
  QuantView result;
  result.weight = tensor(fmt::format("{}.weight", name));
  const std::string scale = fmt::format("{}.scale", name);
  if (!contains(scale)) return result;
  result.scale = tensor(scale);
  // FP4 and Engram rows have scales of their own; an FP8 matrix has at least 32 rows per row of
  // scales.
  constexpr int64_t kTileRows = 32;
  result.scale_rows = result.scale.dim(0) == result.weight.dim(0) ? 1 : kTileRows;
  return result;
}

bool Checkpoint::contains(std::string_view name) const {
  return tensors_.contains(name);
}

}  // namespace deepinfer::checkpoint
