#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

/// How benchmarks measure, and the library that products are judged by. The limits of the machine,
/// measured in the same run on the same threads, are those of cpu/machine_limits.h.
namespace deepinfer::bench {

/// Wall time of one call.
template <typename Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Times of repeats that alternate with those of what they are compared with.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  double median() const {
    std::vector<double> sorted = values_;
    std::ranges::nth_element(sorted,
                             sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2));
    return sorted[sorted.size() / 2];
  }

 private:
  std::vector<double> values_;
};

/// oneDNN's product of bf16 rows [rows, k] with a bf16 weight [out, k] that it has repacked as it
/// likes, on `threads` threads. Not available in builds without oneDNN.
class BaselineProduct {
 public:
  BaselineProduct(int64_t rows, int64_t out, int64_t k, int threads);
  ~BaselineProduct();
  BaselineProduct(const BaselineProduct&) = delete;
  BaselineProduct& operator=(const BaselineProduct&) = delete;
  bool available() const { return state_ != nullptr; }
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::bench
