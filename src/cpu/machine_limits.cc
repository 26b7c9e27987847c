#include "cpu/machine_limits.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "cpu/dispatch.h"

namespace deepinfer::cpu {
namespace {

constexpr int kRepeats = 5;
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kBufferPieces = 256;
/// Rounds of independent multiply-adds per task: about a millisecond.
constexpr int64_t kRounds = 100'000;

/// Median wall time of a loop of `tasks` tasks.
template <typename Body>
double median_seconds(ThreadPool& pool, int64_t tasks, const Body& body) {
  std::array<double, kRepeats> times{};
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
    time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::ranges::sort(times);
  return times[kRepeats / 2];
}

}  // namespace

MachineLimits measure_limits(ThreadPool& pool) {
  const RowKernels& kernels = choose_kernels().rows;
  std::vector<uint8_t> buffer(kBufferPieces * kPieceBytes);
  // One result per task, so that no read can be left out.
  std::vector<float> results(kBufferPieces);
  const auto read = [&](int64_t i) {
    results[static_cast<size_t>(i)] =
        kernels.read_all(buffer.data() + i * kPieceBytes, kPieceBytes);
  };
  median_seconds(pool, kBufferPieces, read);  // maps the pages
  const double read_time = median_seconds(pool, kBufferPieces, read);

  const int64_t tasks = int64_t{pool.num_threads()} * 8;
  std::vector<double> operations(static_cast<size_t>(tasks));
  const double compute_time = median_seconds(pool, tasks, [&](int64_t i) {
    operations[static_cast<size_t>(i)] = kernels.multiply_add(kRounds);
  });
  double sum = 0;
  for (const double count : operations) sum += count;
  return {.read_bytes_per_second = kBufferPieces * kPieceBytes / read_time,
          .operations_per_second = sum / compute_time};
}

}  // namespace deepinfer::cpu
