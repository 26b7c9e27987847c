#include "cpu/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "cpu/dispatch.h"

namespace deepinfer::cpu {
namespace {

constexpr int kRepeats = 5;
constexpr int64_t kPieceBytes = int64_t{1} << 20;
/// Rounds of independent multiply-adds per task: about a millisecond.
constexpr int64_t kRounds = 100'000;

/// Wall time of a loop of `tasks` tasks.
template <typename Body>
double seconds_of_loop(ThreadPool& pool, int64_t tasks, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename Body>
double median_of_repeats(const Body& body) {
  std::array<double, kRepeats> values{};
  for (double& value : values) value = body();
  std::ranges::sort(values);
  return values[kRepeats / 2];
}

}  // namespace

int64_t limit_buffer_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const int64_t last_level = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#else
  const int64_t last_level = 0;
#endif
  constexpr int64_t kLeast = int64_t{256} << 20;
  constexpr int64_t kMost = int64_t{2} << 30;
  return std::clamp(std::min(last_level, kMost) * 4 / kPieceBytes * kPieceBytes, kLeast, kMost);
}

double seconds_to_read(ThreadPool& pool, const void* data, int64_t count) {
  const RowKernels& kernels = choose_kernels().rows;
  const auto* bytes = static_cast<const uint8_t*>(data);
  // One result per task, so that no read can be left out.
  std::vector<float> results(static_cast<size_t>(count / kPieceBytes));
  return seconds_of_loop(pool, count / kPieceBytes, [&](int64_t i) {
    results[static_cast<size_t>(i)] = kernels.read_all(bytes + i * kPieceBytes, kPieceBytes);
  });
}

double peak_operations_per_second(ThreadPool& pool) {
  const RowKernels& kernels = choose_kernels().rows;
  const int64_t tasks = int64_t{pool.num_threads()} * 8;
  std::vector<double> operations(static_cast<size_t>(tasks));
  return median_of_repeats([&] {
    const double time = seconds_of_loop(pool, tasks, [&](int64_t i) {
      operations[static_cast<size_t>(i)] = kernels.multiply_add(kRounds);
    });
    double sum = 0;
    for (const double count : operations) sum += count;
    return sum / time;
  });
}

MachineLimits measure_limits(ThreadPool& pool) {
  const std::vector<uint8_t> buffer(static_cast<size_t>(limit_buffer_bytes()));  // maps the pages
  const double read_time =
      median_of_repeats([&] { return seconds_to_read(pool, buffer.data(), std::ssize(buffer)); });
  return {.read_bytes_per_second = static_cast<double>(buffer.size()) / read_time,
          .operations_per_second = peak_operations_per_second(pool)};
}

}  // namespace deepinfer::cpu
