#include "cpu/backend.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "cpu/dispatch.h"
#include "cpu/operations.h"
#include "ops/host_rows.h"

namespace deepinfer::cpu {
namespace {

/// Everything runs at once, on the host: memory is the host's, and synchronize() has nothing to
/// wait for.
class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(ThreadPool& pool, const Kernels& kernels)
      : workspace_(pool.num_threads()), context_{pool, kernels, workspace_} {}

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
    check(params);
    ops::resolve_rows_on_host(params);
  }
  void embed(const ops::EmbedParams& params) override { run(params, cpu::embed); }
  void engram(const ops::EngramParams& params) override { run(params, cpu::engram); }
  void site_begin(const ops::SiteBeginParams& params) override { run(params, cpu::site_begin); }
  void qkv(const ops::QkvParams& params) override { run(params, cpu::qkv); }
  void compress(const ops::CompressParams& params) override { run(params, cpu::compress); }
  void index_select(const ops::IndexSelectParams& params) override {
    run(params, cpu::index_select);
  }
  void sparse_attention(const ops::SparseAttentionParams& params) override {
    run(params, cpu::sparse_attention);
  }
  void window_store(const ops::WindowStoreParams& params) override {
    run(params, cpu::window_store);
  }
  void output_projection(const ops::OutputProjectionParams& params) override {
    run(params, cpu::output_projection);
  }
  void site_end(const ops::SiteEndParams& params) override { run(params, cpu::site_end); }
  void route(const ops::RouteParams& params) override { run(params, cpu::route); }
  void experts(const ops::ExpertsParams& params) override { run(params, cpu::experts); }
  void combine(const ops::CombineParams& params) override { run(params, cpu::combine); }
  void tap(const ops::TapParams& params) override { run(params, cpu::tap); }
  void logits(const ops::LogitsParams& params) override { run(params, cpu::logits); }
  void sample(const ops::SampleParams& params) override { run(params, cpu::sample); }
  void commit(const ops::CommitParams& params) override {
    check(params);
    ops::commit_on_host(params);
  }

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
};

}  // namespace

std::unique_ptr<ops::Backend> make_cpu_backend(ThreadPool& pool, const CpuOptions& options) {
  return std::make_unique<CpuBackend>(pool, choose_kernels(options.level));
}

}  // namespace deepinfer::cpu
