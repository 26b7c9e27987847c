#include "ops/backend.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "ops/host_rows.h"
#include "ops/reference/reference.h"

namespace deepinfer::ops {
namespace {

/// Everything runs at once, on the host: memory is the host's, and synchronize() has nothing to
/// wait for.
class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(Numerics numerics, ThreadPool& pool) : context_{numerics, &pool} {}

  std::string_view name() const override { return "reference"; }
  std::string numerics_id() const override {
    return context_.numerics == Numerics::kEngine ? "reference-1-engine" : "reference-1-exact";
  }
  Numerics numerics() const override { return context_.numerics; }

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

  void resolve_rows(const ResolveRowsParams& params) override {
    check(params);
    resolve_rows_on_host(params);
  }
  void embed(const EmbedParams& params) override { run(params, reference::embed); }
  void engram(const EngramParams& params) override { run(params, reference::engram); }
  void site_begin(const SiteBeginParams& params) override { run(params, reference::site_begin); }
  void qkv(const QkvParams& params) override { run(params, reference::qkv); }
  void compress(const CompressParams& params) override { run(params, reference::compress); }
  void index_select(const IndexSelectParams& params) override {
    run(params, reference::index_select);
  }
  void sparse_attention(const SparseAttentionParams& params) override {
    run(params, reference::sparse_attention);
  }
  void window_store(const WindowStoreParams& params) override {
    run(params, reference::window_store);
  }
  void output_projection(const OutputProjectionParams& params) override {
    run(params, reference::output_projection);
  }
  void site_end(const SiteEndParams& params) override { run(params, reference::site_end); }
  void route(const RouteParams& params) override { run(params, reference::route); }
  void experts(const ExpertsParams& params) override { run(params, reference::experts); }
  void combine(const CombineParams& params) override { run(params, reference::combine); }
  void tap(const TapParams& params) override { run(params, reference::tap); }
  void logits(const LogitsParams& params) override { run(params, reference::logits); }
  void sample(const SampleParams& params) override { run(params, reference::sample); }
  void commit(const CommitParams& params) override {
    check(params);
    commit_on_host(params);
  }

 private:
  template <typename Params>
  void run(const Params& params, void (*operation)(const reference::Context&, const Params&)) {
    check(params);
    operation(context_, params);
  }

  reference::Context context_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(Numerics numerics, ThreadPool& pool) {
  return std::make_unique<ReferenceBackend>(numerics, pool);
}

}  // namespace deepinfer::ops
