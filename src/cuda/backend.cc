#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <new>

#include "base/error.h"
#include "cuda/arena.h"
#include "cuda/context.h"
#include "cuda/cuda.h"
#include "cuda/devices.h"
#include "cuda/error.h"
#include "cuda/ops/ops.h"
#include "cuda/pointer_tables.h"
#include "cuda/staging.h"
#include "cuda/stream.h"

namespace deepinfer::cuda {
namespace {

/// Plans, sampling rows and page tables of a step: far less than this.
constexpr int64_t kStagingBytes = int64_t{8} << 20;
/// Larger copies from the host (weights, biases of a whole vocabulary) may wait for the stream.
constexpr int64_t kMaxStagedCopy = int64_t{1} << 20;
/// Marks that can be told apart; older ones count as reached when the oldest of these is.
constexpr size_t kNumMarks = 8;

/// Host memory that the device reads and writes over PCIe while the host goes on.
class PinnedMemory {
 public:
  explicit PinnedMemory(int64_t bytes) {
    const cudaError_t result =
        cudaHostAlloc(&data_, static_cast<size_t>(bytes), cudaHostAllocMapped);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not sticky: the next call must not report it again
      fail(ErrorCode::kResourceExhausted,
           "no {:.2f} GiB of pinned host memory (Engram tables can stay in the file: engram "
           "\"file\")",
           static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
    }
    DEEPINFER_CUDA(result);
  }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Everything goes into one stream, in call order. Owned by the engine thread, which must be the
/// thread that made it or call nothing else on another device.
class CudaBackend final : public ops::Backend {
 public:
  explicit CudaBackend(const BackendOptions& options)
      : device_(use_device(options.device)),
        arena_(options.reserve_bytes + options.workspace_bytes + 2 * kStagingBytes),
        staging_(arena_.take(kStagingBytes), kStagingBytes),
        workspace_(arena_.take(options.workspace_bytes), options.workspace_bytes),
        counters_(allocate(DType::kI32, {kNumCounters})),
        fault_memory_(sizeof(Fault)),
        fault_(new(fault_memory_.data()) Fault{.bad_table_row = -1}),
        tables_in_file_(options.tables_in_file),
        context_{.stream = stream_.get(),
                 .workspace = &workspace_,
                 .staging = &staging_,
                 .tables = &tables_,
                 .fault = fault_,
                 .counters = counters_.as<int32_t>(),
                 .family = family_of(device_),
                 .num_multiprocessors = device_.num_multiprocessors} {}
  ~CudaBackend() override { cudaStreamSynchronize(stream_.get()); }

  std::string_view name() const override { return "cuda"; }
  std::string numerics_id() const override { return device_.family + "-1"; }
  ops::Numerics numerics() const override { return ops::Numerics::kEngine; }

  Tensor allocate(DType dtype, const Shape& shape) override {
    const TensorView view(arena_.take(shape.num_elements() * size_of(dtype)), dtype, shape,
                          tensor_device());
    select();
    DEEPINFER_CUDA(
        cudaMemsetAsync(view.data(), 0, static_cast<size_t>(view.num_bytes()), stream_.get()));
    return Tensor::borrow(view);
  }

  void begin_scope() override { scope_ = arena_.mark(); }
  void end_scope() override {
    select();
    cudaStreamSynchronize(stream_.get());  // what failed is told by the next call
    arena_.release(scope_);
  }

  Tensor allocate_host(DType dtype, const Shape& shape) override {
    select();
    const PinnedMemory& memory =
        host_memory_.emplace_back(std::max<int64_t>(shape.num_elements() * size_of(dtype), 1));
    return Tensor::borrow(TensorView(memory.data(), dtype, shape));
  }

  TensorView place(const TensorView& stored) override {
    const TensorView view(arena_.take(stored.num_bytes()), stored.dtype(), stored.shape(),
                          tensor_device());
    copy(stored, view);
    return view;
  }

  TensorView place_table(const TensorView& stored) override {
    if (tables_in_file_) return stored;
    select();
    const PinnedMemory& memory = host_memory_.emplace_back(stored.num_bytes());
    std::memcpy(memory.data(), stored.data(), static_cast<size_t>(stored.num_bytes()));
    return {memory.data(), stored.dtype(), stored.shape(), tensor_device()};
  }

  void copy(const TensorView& from, const TensorView& to) override {
    const int64_t count = from.shape().num_elements();
    DEEPINFER_CHECK(from.dtype() == to.dtype() && count == to.shape().num_elements(),
                    "copy of {} {} to {} {}", from.shape().to_string(), to_string(from.dtype()),
                    to.shape().to_string(), to_string(to.dtype()));
    if (count == 0) return;
    select();
    // The reshapes check that both are contiguous.
    if (from.device().kind == DeviceKind::kHost && from.num_bytes() <= kMaxStagedCopy) {
      staging_.copy(from.reshape({count}).data(), to.reshape({count}).data(), from.num_bytes(),
                    stream_.get());
      return;
    }
    // From pageable memory the call returns once the source has been read.
    DEEPINFER_CUDA(cudaMemcpyAsync(to.reshape({count}).data(), from.reshape({count}).data(),
                                   static_cast<size_t>(from.num_bytes()), cudaMemcpyDefault,
                                   stream_.get()));
  }

  void synchronize() override {
    select();
    stream_.synchronize();
    check_fault();
    staging_.free_until(staging_.position());
  }

  uint64_t record() override {
    select();
    const uint64_t mark = ++newest_mark_;
    Mark& slot = marks_[mark % kNumMarks];
    slot.staged = staging_.position();
    slot.event.record(stream_.get());
    return mark;
  }
  bool is_done(uint64_t mark) override {
    select();
    const Mark& slot = slot_of(mark);
    if (!slot.event.is_reached()) return false;
    staging_.free_until(slot.staged);
    return true;
  }
  void wait(uint64_t mark) override {
    select();
    const Mark& slot = slot_of(mark);
    slot.event.synchronize();
    check_fault();
    staging_.free_until(slot.staged);
  }

  void resolve_rows(const ops::ResolveRowsParams& params) override {
    run(params, cuda::resolve_rows);
  }
  void embed(const ops::EmbedParams& params) override { run(params, cuda::embed); }
  void engram(const ops::EngramParams& params) override { run(params, cuda::engram); }
  void site_begin(const ops::SiteBeginParams& params) override { run(params, cuda::site_begin); }
  void qkv(const ops::QkvParams& params) override { run(params, cuda::qkv); }
  void compress(const ops::CompressParams& params) override { run(params, cuda::compress); }
  void index_select(const ops::IndexSelectParams& params) override {
    run(params, cuda::index_select);
  }
  void sparse_attention(const ops::SparseAttentionParams& params) override {
    run(params, cuda::sparse_attention);
  }
  void window_store(const ops::WindowStoreParams& params) override {
    run(params, cuda::window_store);
  }
  void output_projection(const ops::OutputProjectionParams& params) override {
    run(params, cuda::output_projection);
  }
  void site_end(const ops::SiteEndParams& params) override { run(params, cuda::site_end); }
  void route(const ops::RouteParams& params) override { run(params, cuda::route); }
  void experts(const ops::ExpertsParams& params) override { run(params, cuda::experts); }
  void combine(const ops::CombineParams& params) override { run(params, cuda::combine); }
  void tap(const ops::TapParams& params) override { run(params, cuda::tap); }
  void logits(const ops::LogitsParams& params) override { run(params, cuda::logits); }
  void sample(const ops::SampleParams& params) override { run(params, cuda::sample); }
  void commit(const ops::CommitParams& params) override { run(params, cuda::commit); }

 private:
  Device tensor_device() const { return {DeviceKind::kCuda, static_cast<int8_t>(device_.index)}; }
  /// The current device is a property of the calling thread.
  void select() const { DEEPINFER_CUDA(cudaSetDevice(device_.index)); }

  struct Mark {
    Event event;
    int64_t staged = 0;  // Staging::position() then
  };
  /// Of a mark, or of the oldest one that is still known.
  const Mark& slot_of(uint64_t mark) const {
    const uint64_t oldest = newest_mark_ < kNumMarks ? 1 : newest_mark_ - kNumMarks + 1;
    return marks_[std::max(mark, oldest) % kNumMarks];
  }

  /// What the kernels found since the last look.
  void check_fault() const {
    const int64_t row = fault_->bad_table_row;
    if (row < 0) return;
    fault_->bad_table_row = -1;
    fail(ErrorCode::kInvalidFile,
         "row {} of an Engram table (engram.embed) holds a NaN, expected finite codes and scales: "
         "the checkpoint is damaged",
         row);
  }

  template <typename Params>
  void run(const Params& params, void (*operation)(const Params&, Context&)) {
    check(params);
    select();
    const WorkspaceScope scope(workspace_);
    operation(params, context_);
  }

  DeviceInfo device_;  // first: everything below needs the device to be the current one
  Stream stream_;
  Arena arena_;
  Arena::Mark scope_{};
  Staging staging_;
  Workspace workspace_;
  PointerTables tables_;
  std::array<Mark, kNumMarks> marks_;
  uint64_t newest_mark_ = 0;
  Tensor counters_;
  PinnedMemory fault_memory_;
  volatile Fault* fault_;
  bool tables_in_file_;
  std::deque<PinnedMemory> host_memory_;
  Context context_;
};

}  // namespace

std::unique_ptr<ops::Backend> make_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace deepinfer::cuda
