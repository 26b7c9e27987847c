#include "ops/profiling_backend.h"

#include <chrono>

#include "ops/cost.h"

namespace deepinfer::ops {
namespace {

constexpr std::array<std::string_view, kNumOperations> kNames = {
    "resolve_rows", "embed",
    "engram",       "site_begin",
    "qkv",          "compress",
    "index_select", "sparse_attention",
    "window_store", "output_projection",
    "site_end",     "route",
    "experts",      "combine",
    "tap",          "logits",
    "sample",       "commit"};

class ProfilingBackendImpl final : public ProfilingBackend {
 public:
  explicit ProfilingBackendImpl(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  const Profile& profile() const override { return profile_; }

  std::string_view name() const override { return inner_->name(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  Numerics numerics() const override { return inner_->numerics(); }
  Tensor allocate(DType dtype, const Shape& shape) override {
    return inner_->allocate(dtype, shape);
  }
  void begin_scope() override { inner_->begin_scope(); }
  void end_scope() override { inner_->end_scope(); }
  Tensor allocate_host(DType dtype, const Shape& shape) override {
    return inner_->allocate_host(dtype, shape);
  }
  TensorView place(const TensorView& stored) override { return inner_->place(stored); }
  TensorView place_table(const TensorView& stored) override { return inner_->place_table(stored); }
  void copy(const TensorView& from, const TensorView& to) override { inner_->copy(from, to); }
  void synchronize() override { inner_->synchronize(); }
  uint64_t record() override { return inner_->record(); }
  bool is_done(uint64_t mark) override { return inner_->is_done(mark); }
  void wait(uint64_t mark) override { inner_->wait(mark); }

  void resolve_rows(const ResolveRowsParams& params) override {
    run(Operation::kResolveRows, params, &Backend::resolve_rows);
  }
  void embed(const EmbedParams& params) override {
    run(Operation::kEmbed, params, &Backend::embed);
  }
  void engram(const EngramParams& params) override {
    run(Operation::kEngram, params, &Backend::engram);
  }
  void site_begin(const SiteBeginParams& params) override {
    run(Operation::kSiteBegin, params, &Backend::site_begin);
  }
  void qkv(const QkvParams& params) override { run(Operation::kQkv, params, &Backend::qkv); }
  void compress(const CompressParams& params) override {
    run(Operation::kCompress, params, &Backend::compress);
  }
  void index_select(const IndexSelectParams& params) override {
    run(Operation::kIndexSelect, params, &Backend::index_select);
  }
  void sparse_attention(const SparseAttentionParams& params) override {
    run(Operation::kSparseAttention, params, &Backend::sparse_attention);
  }
  void window_store(const WindowStoreParams& params) override {
    run(Operation::kWindowStore, params, &Backend::window_store);
  }
  void output_projection(const OutputProjectionParams& params) override {
    run(Operation::kOutputProjection, params, &Backend::output_projection);
  }
  void site_end(const SiteEndParams& params) override {
    run(Operation::kSiteEnd, params, &Backend::site_end);
  }
  void route(const RouteParams& params) override {
    run(Operation::kRoute, params, &Backend::route);
  }
  void experts(const ExpertsParams& params) override {
    run(Operation::kExperts, params, &Backend::experts);
  }
  void combine(const CombineParams& params) override {
    run(Operation::kCombine, params, &Backend::combine);
  }
  void tap(const TapParams& params) override { run(Operation::kTap, params, &Backend::tap); }
  void logits(const LogitsParams& params) override {
    run(Operation::kLogits, params, &Backend::logits);
  }
  void sample(const SampleParams& params) override {
    run(Operation::kSample, params, &Backend::sample);
  }
  void commit(const CommitParams& params) override {
    run(Operation::kCommit, params, &Backend::commit);
  }

 private:
  template <typename Params>
  void run(Operation operation, const Params& params, void (Backend::*compute)(const Params&)) {
    const auto start = std::chrono::steady_clock::now();
    (inner_.get()->*compute)(params);
    inner_->synchronize();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    // Costs read operands, and those of a device are out of reach: times only.
    const Cost cost = inner_->name() == "cuda" ? Cost{} : cost_of(params);
    OperationTotals& totals = profile_[static_cast<size_t>(operation)];
    ++totals.calls;
    totals.seconds += time.count();
    totals.bytes += cost.bytes;
    totals.operations += cost.operations;
  }

  std::unique_ptr<Backend> inner_;
  Profile profile_;
};

}  // namespace

std::string_view to_string(Operation operation) {
  return kNames[static_cast<size_t>(operation)];
}

std::unique_ptr<ProfilingBackend> make_profiling_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<ProfilingBackendImpl>(std::move(inner));
}

}  // namespace deepinfer::ops
