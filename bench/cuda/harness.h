#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cuda/library.h"
#include "bench/cuda/table.h"
#include "checkpoint/config.h"
#include "cuda/arena.h"
#include "cuda/context.h"
#include "cuda/devices.h"
#include "cuda/pointer_tables.h"
#include "cuda/staging.h"
#include "cuda/stream.h"
#include "ops/cost.h"

namespace deepinfer::bench {

struct Options {
  std::string filter;  // only operations whose name contains it
  std::string json;    // where the results go as well; empty: nowhere
};

/// Rows of a step that most operations are measured with.
inline constexpr std::array<int64_t, 6> kRowCounts = {1, 16, 64, 256, 1024, 4096};
/// Rows of a pool that sets of operands are taken from in turn: two sets of the largest step.
inline constexpr int64_t kPoolRows = 8192;
/// Up to here a step is one row each of so many requests; beyond, prompts of 1,024 rows each.
inline constexpr int64_t kMaxDecodeRows = 256;
inline constexpr int64_t kPromptRows = 1024;

constexpr int64_t requests_of(int64_t rows) {
  return rows <= kMaxDecodeRows ? rows : rows / kPromptRows;
}

/// How many sets of operands of so many bytes a measurement goes through in turn: enough for
/// several times the L2 cache, or 128, where a step would find the operands in the cache, too.
constexpr int64_t num_sets(double bytes) {
  constexpr double kTurnBytes = 256 << 20;
  return std::clamp<int64_t>(static_cast<int64_t>(kTurnBytes / bytes) + 1, 1, 128);
}

/// `set` of a list of operands that turns for itself.
template <typename T>
const T& in_turn(const std::vector<T>& sets, int64_t set) {
  return sets[static_cast<size_t>(set) % sets.size()];
}
/// `count` rows of a pool, others for every set as long as there are any.
inline TensorView in_turn(const TensorView& pool, int64_t set, int64_t count) {
  return pool.slice(set % (pool.dim(0) / count) * count, count);
}

inline double bytes_of(const QuantView& w) {
  return static_cast<double>(w.weight.num_bytes() + (w.scale.empty() ? 0 : w.scale.num_bytes()));
}

/// What is known of a measurement beside its operands.
struct Notes {
  std::optional<ops::Cost> cost =
      std::nullopt;  // where cost_of() cannot read it from device operands
  double pinned_bytes = 0;
  double library_us = 0;
  int64_t max_sets = 128;  // fewer where every call stages data: all of a graph's stay staged
};

/// Device memory, time and table of the benchmark. Host data handed over may be dropped at once.
class Harness {
 public:
  explicit Harness(Options options);
  ~Harness();
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  /// The released model's sizes, but for Engram tables that have room on the device.
  const checkpoint::ModelConfig& config() const { return config_; }
  bool wants(std::string_view name) const { return name.find(options_.filter) != name.npos; }

  TensorView zeros(DType dtype, const Shape& shape);
  /// 32-bit words (random & mask) + base.
  TensorView random_bits(DType dtype, const Shape& shape, uint32_t mask, uint32_t base);
  /// Of both signs, magnitudes from 1/8 to 2; fp32 or bf16.
  TensorView random(DType dtype, const Shape& shape);
  TensorView normal(const Shape& shape, float deviation);  // fp32
  QuantView random_weight(DType dtype, int64_t outputs, int64_t columns);
  /// As many as a turn needs.
  std::vector<QuantView> random_weights(DType dtype, int64_t outputs, int64_t columns);
  TensorView upload(const TensorView& host);
  /// Pinned host memory with random bits, as the device sees it; freed with the harness.
  TensorView pinned_bits(DType dtype, const Shape& shape, uint32_t mask, uint32_t base);
  ops::Rope rope();

  cuda::Arena& arena() { return arena_; }
  cuda::Context& context() { return context_; }

  /// Median microseconds of one call of `body(set)`: replays of a graph of one call for every set.
  double time(int64_t sets, const std::function<void(int64_t)>& body);
  /// cuBLASLt's time for these bf16 products one after the other; 0 without it. Weights turn.
  double library_us(std::initializer_list<LibraryProduct> products);

  /// Times an operation on `make(set)` as the backend calls it and adds it to the table.
  template <typename Params>
  void measure(const std::string& name, int64_t rows, const std::function<Params(int64_t)>& make,
               void (*operation)(const Params&, cuda::Context&), const Notes& notes = {}) {
    std::vector<Params> sets = {make(0)};
    const ops::Cost cost = notes.cost ? *notes.cost : ops::cost_of(sets.front());
    const int64_t count = std::min(num_sets(cost.bytes + notes.pinned_bytes), notes.max_sets);
    while (std::ssize(sets) < count) sets.push_back(make(std::ssize(sets)));
    for (const Params& params : sets) check(params);
    const double us = time(count, [&](int64_t set) {
      const cuda::WorkspaceScope scope(workspace_);
      operation(sets[static_cast<size_t>(set)], context_);
    });
    add({.name = name,
         .rows = rows,
         .us = us,
         .cost = cost,
         .pinned_bytes = notes.pinned_bytes,
         .library_us = notes.library_us});
  }
  void add(Result result) { table_->add(std::move(result)); }
  /// The summary and the JSON file.
  void finish() const;

 private:
  Limits measure_limits();
  double copy_bytes_per_us(const TensorView& pinned);

  static constexpr int64_t kWorkspaceBytes = int64_t{4} << 30;
  static constexpr int64_t kStagingBytes = int64_t{8} << 20;

  Options options_;
  checkpoint::ModelConfig config_;
  cuda::DeviceInfo device_ = cuda::use_device(0);  // before anything asks for memory
  cuda::Stream stream_;
  cuda::Arena arena_;
  cuda::Workspace workspace_{arena_.take(kWorkspaceBytes), kWorkspaceBytes};
  cuda::Staging staging_{arena_.take(kStagingBytes), kStagingBytes};
  cuda::PointerTables tables_;
  std::vector<void*> pinned_;
  std::unique_ptr<MatrixLibrary> library_;
  cuda::Context context_;
  uint32_t seed_ = 0;
  std::optional<Table> table_;
};

/// Gives back the device memory taken since it was made. Graphs on it must be gone.
class MemoryScope {
 public:
  explicit MemoryScope(Harness& harness) : arena_(harness.arena()), mark_(arena_.mark()) {}
  ~MemoryScope() { arena_.release(mark_); }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  cuda::Arena& arena_;
  cuda::Arena::Mark mark_;
};

/// The operations, in groups: a file each.
void measure_products(Harness& harness);
void measure_attention(Harness& harness);
void measure_index_select(Harness& harness);
void measure_row_operations(Harness& harness);
void measure_step_ends(Harness& harness);

}  // namespace deepinfer::bench
