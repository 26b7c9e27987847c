#include "bench/cuda/library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include "cuda/error.h"

namespace deepinfer::bench {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

class CublasLt final : public MatrixLibrary {
 public:
  explicit CublasLt(void* library) : library_(library) {
    find("cublasLtCreate", create_);
    find("cublasLtMatmulDescCreate", create_operation_);
    find("cublasLtMatmulDescSetAttribute", set_operation_);
    find("cublasLtMatrixLayoutCreate", create_layout_);
    find("cublasLtMatrixLayoutSetAttribute", set_layout_);
    find("cublasLtMatmulPreferenceCreate", create_preference_);
    find("cublasLtMatmulPreferenceSetAttribute", set_preference_);
    find("cublasLtMatmulAlgoGetHeuristic", propose_);
    find("cublasLtMatmul", multiply_);
    find("cublasLtMatmulDescDestroy", destroy_operation_);
    find("cublasLtMatrixLayoutDestroy", destroy_layout_);
    find("cublasLtMatmulPreferenceDestroy", destroy_preference_);
    is_complete_ = is_complete_ && create_(&handle_) == CUBLAS_STATUS_SUCCESS;
    DEEPINFER_CUDA(cudaMalloc(&workspace_, kWorkspaceBytes));
  }
  ~CublasLt() override { cudaFree(workspace_); }

  bool is_complete() const { return is_complete_; }

  bool multiply(const LibraryProduct& p, const void* w, const void* x, void* y,
                cudaStream_t stream) override {
    // Column-major: y as [outputs, rows] = wᵀ [outputs, columns] · x [columns, rows].
    cublasLtMatmulDesc_t operation = nullptr;
    create_operation_(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set_operation_(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
    cublasLtMatrixLayout_t w_layout = layout(p.columns, p.outputs, p.batch);
    cublasLtMatrixLayout_t x_layout = layout(p.columns, p.rows, p.batch);
    cublasLtMatrixLayout_t y_layout = layout(p.outputs, p.rows, p.batch);
    cublasLtMatmulPreference_t preference = nullptr;
    create_preference_(&preference);
    set_preference_(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                    sizeof(kWorkspaceBytes));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    propose_(handle_, operation, w_layout, x_layout, y_layout, y_layout, preference, 1, &found,
             &count);
    const float one = 1;
    const float zero = 0;
    const bool is_done =
        count > 0 && multiply_(handle_, operation, &one, w, w_layout, x, x_layout, &zero, y,
                               y_layout, y, y_layout, &found.algo, workspace_, kWorkspaceBytes,
                               stream) == CUBLAS_STATUS_SUCCESS;
    destroy_preference_(preference);
    for (cublasLtMatrixLayout_t each : {w_layout, x_layout, y_layout}) destroy_layout_(each);
    destroy_operation_(operation);
    return is_done;
  }

 private:
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    is_complete_ = is_complete_ && function != nullptr;
  }
  /// `batch` matrices, one after the other.
  cublasLtMatrixLayout_t layout(int64_t rows, int64_t columns, int64_t batch) const {
    cublasLtMatrixLayout_t result = nullptr;
    create_layout_(&result, CUDA_R_16BF, static_cast<uint64_t>(rows),
                   static_cast<uint64_t>(columns), rows);
    const auto count = static_cast<int32_t>(batch);
    const int64_t stride = rows * columns;
    set_layout_(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    set_layout_(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
    return result;
  }

  void* library_;
  bool is_complete_ = true;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  decltype(&cublasLtCreate) create_ = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation_ = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation_ = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout_ = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout_ = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference_ = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference_ = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose_ = nullptr;
  decltype(&cublasLtMatmul) multiply_ = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation_ = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout_ = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference_ = nullptr;
};

}  // namespace

std::unique_ptr<MatrixLibrary> MatrixLibrary::open() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      auto result = std::make_unique<CublasLt>(library);
      if (result->is_complete()) return result;
    }
  }
  return nullptr;
}

}  // namespace deepinfer::bench
