#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

namespace deepinfer::bench {

/// y [batch, rows, outputs] = x [batch, rows, columns] · w [batch, outputs, columns]ᵀ.
struct LibraryProduct {
  int64_t outputs = 0;
  int64_t columns = 0;
  int64_t rows = 0;
  int64_t batch = 1;
};

/// cuBLASLt's bf16 product, as what ours are compared with. Found at run time.
class MatrixLibrary {
 public:
  /// Nothing if there is no libcublasLt.
  static std::unique_ptr<MatrixLibrary> open();
  virtual ~MatrixLibrary() = default;

  /// All operands bf16; by the algorithm that the library proposes first. False if it has none.
  virtual bool multiply(const LibraryProduct& product, const void* w, const void* x, void* y,
                        cudaStream_t stream) = 0;
};

}  // namespace deepinfer::bench
