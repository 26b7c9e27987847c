#pragma once

#include <cstdint>

namespace deepinfer::model {

/// NumPy's default generator, as far as Engram's multipliers need it:
/// `default_rng(seed).integers(0, bound)` with int64 results. PCG64 (128-bit LCG, XSL-RR output)
/// seeded through SeedSequence; bounded draws by Lemire's method. spec/checkpoint.md §5.4.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed);

  uint64_t next();
  /// Uniform in [0, bound), bound >= 1.
  uint64_t below(uint64_t bound);

 private:
  unsigned __int128 state_ = 0;
  unsigned __int128 increment_ = 0;
};

}  // namespace deepinfer::model
