#include "cpu/backend.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "cpu/dispatch.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {
namespace {

/// Everything runs at once, on the host: memory is the host's, and synchronize() has nothing to
/// wait for.
class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(ThreadPool& pool, const Kernels& kernels)
      : workspace_(pool.num_threads()),
        context_{pool, kernels, workspace_},
        reference_(ops::make_reference_backend(ops::Numerics::kEngine, pool)) {}

  std::string_view name() const override { return "cpu"; }
  /// One family for all levels: their bits are the same.
  std::string numerics_id() const override { return "cpu-1"; }
  ops::Numerics numerics() const override { return ops::Numerics::kEngine; }

  Tensor allocate(DType dtype, const Shape& shape) override {
    try {
      return {dtype, shape};
    } catch (const std::bad_alloc&) {
      fail(ErrorCode::kResourceExhausted, "no memory for a tensor of {} elements of {} byte(s)",
           shape.to_string(), size_of(dtype));
    }
  }
  TensorView place(const TensorView& stored) override { return stored; }
  void copy(const TensorView& from, const TensorView& to) override {
    const int64_t count = from.shape().num_elements();
    DEEPINFER_CHECK(from.dtype() == to.dtype() && count == to.shape().num_elements(),
                    "copy of {} {} to {} {}", from.shape().to_string(), to_string(from.dtype()),
                    to.shape().to_string(), to_string(to.dtype()));
    // The reshapes check that both are contiguous.
    std::memcpy(to.reshape({count}).data(), from.reshape({count}).data(),
                static_cast<size_t>(from.num_bytes()));
  }
  void synchronize() override {}

  void resolve_rows(const ops::ResolveRowsParams& params) override {
    reference_->resolve_rows(params);
  }
  void embed(const ops::EmbedParams& params) override { run(params, cpu::embed); }
  void engram(const ops::EngramParams& params) override { run(params, cpu::engram); }
  void site_begin(const ops::SiteBeginParams& params) override { reference_->site_begin(params); }
  void qkv(const ops::QkvParams& params) override { run(params, cpu::qkv); }
  void compress(const ops::CompressParams& params) override { reference_->compress(params); }
  void index_select(const ops::IndexSelectParams& params) override {
    reference_->index_select(params);
  }
  void sparse_attention(const ops::SparseAttentionParams& params) override {
    reference_->sparse_attention(params);
  }
  void window_store(const ops::WindowStoreParams& params) override {
    reference_->window_store(params);
  }
  void output_projection(const ops::OutputProjectionParams& params) override {
    run(params, cpu::output_projection);
  }
  void site_end(const ops::SiteEndParams& params) override { reference_->site_end(params); }
  void route(const ops::RouteParams& params) override { run(params, cpu::route); }
  void experts(const ops::ExpertsParams& params) override { run(params, cpu::experts); }
  void combine(const ops::CombineParams& params) override { run(params, cpu::combine); }
  void tap(const ops::TapParams& params) override { reference_->tap(params); }
  void logits(const ops::LogitsParams& params) override { run(params, cpu::logits); }
  void sample(const ops::SampleParams& params) override { reference_->sample(params); }
  void commit(const ops::CommitParams& params) override { reference_->commit(params); }

 private:
  /// Checks and runs one operation, and takes its scratch memory back.
  template <typename Params>
  void run(const Params& params, void (*operation)(const Context&, const Params&)) {
    check(params);
    const FlushDenormals flush;
    workspace_.shared().reset();
    operation(context_, params);
  }

  Workspace workspace_;
  Context context_;
  std::unique_ptr<ops::Backend> reference_;
};

}  // namespace

std::unique_ptr<ops::Backend> make_cpu_backend(ThreadPool& pool, const CpuOptions& options) {
  return std::make_unique<CpuBackend>(pool, choose_kernels(options.level));
}

}  // namespace deepinfer::cpu
