#include "bench/cuda/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace deepinfer::bench {
namespace {

constexpr double kMaxOfBound = 10;
constexpr double kMaxOfBoundFp8 = 2;
constexpr int64_t kManyRows = 1024;

void print_misses(const std::vector<const Result*>& misses) {
  for (const Result* r : misses) {
    fmt::print("  {:<32} {:>5} rows {:>10.2f} us {:>7.1f} x the bound of {:.2f} us\n", r->name,
               r->rows, r->us, r->us / r->bound_us, r->bound_us);
  }
}

}  // namespace

Table::Table(Limits limits) : limits_(std::move(limits)) {
  fmt::print("{}, CUDA driver {}\n", limits_.card, limits_.driver);
  fmt::print(
      "read {:.2f} TB/s, cuBLASLt bf16 {:.0f} TFLOP/s, pinned host memory {:.1f} GB/s, empty "
      "kernel {:.2f} us\n\n",
      limits_.read_bytes_per_us / 1e6, limits_.operations_per_us / 1e6,
      limits_.pinned_bytes_per_us / 1e3, limits_.launch_us);
  fmt::print("{:<32} {:>5} {:>10} {:>9} {:>9} {:>10} {:<6} {:>5} {:>10} {:>6}\n", "operation",
             "rows", "us", "MB", "GFLOP", "bound us", "by", "frac", "library us", "ratio");
}

void Table::add(Result result) {
  const std::pair<double, const char*> bounds[] = {
      {result.cost.bytes / limits_.read_bytes_per_us, "memory"},
      {result.cost.operations / limits_.operations_per_us, "matrix"},
      {result.pinned_bytes / limits_.pinned_bytes_per_us, "PCIe"}};
  const auto& bound = *std::ranges::max_element(bounds, {}, [](const auto& b) { return b.first; });
  result.bound_us = bound.first;
  fmt::print("{:<32} {:>5} {:>10.2f} {:>9.2f} {:>9.2f} {:>10.3f} {:<6} {:>5.2f}", result.name,
             result.rows, result.us, (result.cost.bytes + result.pinned_bytes) / 1e6,
             result.cost.operations / 1e9, bound.first, bound.second, bound.first / result.us);
  if (result.library_us > 0) {
    fmt::print(" {:>10.2f} {:>6.2f}", result.library_us, result.us / result.library_us);
  }
  fmt::print("\n");
  std::fflush(stdout);  // what was measured stays readable if a later operation fails
  results_.push_back(std::move(result));
}

void Table::print_summary() const {
  // Where the bound is far below a launch, only fusing with a neighbour could meet it.
  std::vector<const Result*> misses, launches, linears;
  int64_t num_linears = 0;
  for (const Result& r : results_) {
    const bool is_small = r.bound_us * kMaxOfBound < limits_.launch_us;
    if (r.us > kMaxOfBound * r.bound_us) (is_small ? launches : misses).push_back(&r);
    if (!r.is_fp8_linear || r.rows < kManyRows) continue;
    ++num_linears;
    if (r.us > kMaxOfBoundFp8 * r.bound_us) linears.push_back(&r);
  }
  fmt::print("\n{} measurements. Beyond {:.0f} x of the bound: {}\n", results_.size(), kMaxOfBound,
             misses.size());
  print_misses(misses);
  fmt::print("beyond {:.0f} x where even an empty kernel ({:.2f} us) would be: {}\n", kMaxOfBound,
             limits_.launch_us, launches.size());
  print_misses(launches);
  fmt::print("FP8 linears of {} rows and more beyond {:.0f} x of the bound: {} of {}\n", kManyRows,
             kMaxOfBoundFp8, linears.size(), num_linears);
  print_misses(linears);
}

void Table::write_json(const std::string& path) const {
  std::string text = fmt::format(
      "{{\"card\": \"{}\", \"driver\": \"{}\", \"read_bytes_per_us\": {}, "
      "\"operations_per_us\": {}, \"pinned_bytes_per_us\": {}, \"launch_us\": {},\n\"results\": [",
      limits_.card, limits_.driver, limits_.read_bytes_per_us, limits_.operations_per_us,
      limits_.pinned_bytes_per_us, limits_.launch_us);
  for (const Result& r : results_) {
    text += fmt::format(
        "{}\n{{\"operation\": \"{}\", \"rows\": {}, \"us\": {:.3f}, \"bytes\": {:.0f}, "
        "\"pinned_bytes\": {:.0f}, \"operations\": {:.0f}, \"bound_us\": {:.4f}, \"library_us\": "
        "{:.3f}}}",
        &r == results_.data() ? "" : ",", r.name, r.rows, r.us, r.cost.bytes, r.pinned_bytes,
        r.cost.operations, r.bound_us, r.library_us);
  }
  text += "\n]}\n";
  FileWriter file(path);
  file.write(text);
  file.commit();
}

}  // namespace deepinfer::bench
