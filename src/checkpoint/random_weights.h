#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/names.h"

namespace deepinfer::checkpoint {

/// The bytes of one random tensor, any part of it in any order: byte b is a function of (seed,
/// name, b). Values are about normal. Products have standard deviation 1/√fan_in, so activations
/// keep their size from layer to layer; norm weights are near 1; no code and no scale is NaN.
class RandomWeights {
 public:
  RandomWeights(uint64_t seed, const ExpectedTensor& tensor);

  /// Writes bytes [begin, begin + out.size()) of the tensor; `begin` is a multiple of 8. Any
  /// thread.
  void fill(int64_t begin, std::span<std::byte> out) const;

 private:
  uint64_t key_;
  DType dtype_;
  float mean_ = 0;
  float deviation_ = 1;
  int base_scale_ = 127;  // kE8M0: the middle of the bytes written
};

}  // namespace deepinfer::checkpoint
