#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/cost.h"

namespace deepinfer::bench {

/// What an operation is judged by, measured in the same run.
struct Limits {
  std::string card;
  std::string driver;              // newest CUDA version that it serves
  double read_bytes_per_us = 0;    // of device memory
  double operations_per_us = 0;    // cuBLASLt's bf16 product of 8192 × 8192 × 8192
  double pinned_bytes_per_us = 0;  // host memory read over PCIe by a kernel or copied, the faster
  double launch_us = 0;            // an empty kernel of a graph
};

/// One line of the table.
struct Result {
  std::string name;
  int64_t rows = 0;
  double us = 0;  // median of one call
  ops::Cost cost;
  double pinned_bytes = 0;  // read from pinned host memory; not part of cost.bytes
  double library_us = 0;    // the best library call for the same work; 0: none
  bool is_fp8_linear = false;
  double bound_us = 0;  // set by Table::add
};

/// The results, as printed, as JSON and in the summary at the end.
class Table {
 public:
  explicit Table(Limits limits);

  /// Prints the line at once.
  void add(Result result);
  /// What misses the goals: 10× of the bound for every operation, 2× for FP8 linears of 1,024 rows
  /// and more.
  void print_summary() const;
  /// Errors: those of FileWriter.
  void write_json(const std::string& path) const;

 private:
  Limits limits_;
  std::vector<Result> results_;
};

}  // namespace deepinfer::bench
