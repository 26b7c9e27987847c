#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

namespace deepinfer::bench {

/// cuBLASLt's bf16 product, as what ours are compared with. Found at run time.
class MatrixLibrary {
 public:
  /// Nothing if there is no libcublasLt.
  static std::unique_ptr<MatrixLibrary> open();
  virtual ~MatrixLibrary() = default;

  /// y [rows, outputs] bf16 = x [rows, columns] · w [outputs, columns]ᵀ, by the algorithm that the
  /// library proposes first. False if it has none.
  virtual bool multiply(const void* w, const void* x, void* y, int64_t outputs, int64_t columns,
                        int64_t rows, cudaStream_t stream) = 0;
};

}  // namespace deepinfer::bench
