#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "ops/commit.h"
#include "ops/compress.h"
#include "ops/embed.h"
#include "ops/engram.h"
#include "ops/index_select.h"
#include "ops/logits.h"
#include "ops/moe.h"
#include "ops/output_projection.h"
#include "ops/qkv.h"
#include "ops/resolve_rows.h"
#include "ops/sample.h"
#include "ops/site.h"
#include "ops/sparse_attention.h"

namespace deepinfer::ops {

/// Which arithmetic a backend computes (spec/model.md §9, §10).
enum class Numerics {
  kEngine,  // what users get: bf16 activations, FP8 inputs of FP8 and FP4 products
  kExact,   // the check of the formulas: fp32 activations, no input is quantised; `reference` only
};

/// The element type of activations ("act" in the shapes of the Params).
constexpr DType activation_dtype(Numerics numerics) {
  return numerics == Numerics::kEngine ? DType::kBF16 : DType::kF32;
}

/// One way of computing the operations: reference, cpu, cuda. Owned and called by the engine
/// thread. Operations may run asynchronously, in call order; synchronize() waits for them. Every
/// operation's result for a row is a function of that row's data alone (design.md, "rules for
/// kernels").
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// Names numerics version and kernel family; part of system_fingerprint and of keys kept on disk.
  virtual std::string numerics_id() const = 0;
  virtual Numerics numerics() const = 0;

  /// Zero-initialised memory that the operations can reach. Errors: kResourceExhausted.
  virtual Tensor allocate(DType dtype, const Shape& shape) = 0;
  /// Memory allocated between the two is given back by the second: see AllocationScope.
  virtual void begin_scope() {}
  virtual void end_scope() {}
  /// Host memory that copies from and to do not wait for; not initialised; lives as long as the
  /// backend. Errors: kResourceExhausted.
  virtual Tensor allocate_host(DType dtype, const Shape& shape) { return {dtype, shape}; }
  /// A stored weight as the operations can reach it; lives as long as the backend and `stored`.
  virtual TensorView place(const TensorView& stored) = 0;
  /// A stored table whose rows are gathered (Engram): too large to be moved where it is far from
  /// the operations; lives as long as the backend and `stored`.
  virtual TensorView place_table(const TensorView& stored) { return stored; }
  /// Copies between host and backend memory, in call order with the operations; equal dtype and
  /// element count.
  virtual void copy(const TensorView& from, const TensorView& to) = 0;
  virtual void synchronize() = 0;
  /// A mark behind everything called so far. The engine enqueues a step, then the next one, and
  /// waits for the mark of the first. Backends that compute inside the calls have nothing to mark.
  virtual uint64_t record() { return 0; }
  /// Whether everything before a mark has been computed; does not wait.
  virtual bool is_done(uint64_t /*mark*/) { return true; }
  /// Waits for everything before a mark. Throws what it failed with.
  virtual void wait(uint64_t /*mark*/) { synchronize(); }

  virtual void resolve_rows(const ResolveRowsParams& params) = 0;
  virtual void embed(const EmbedParams& params) = 0;
  virtual void engram(const EngramParams& params) = 0;
  virtual void site_begin(const SiteBeginParams& params) = 0;
  virtual void qkv(const QkvParams& params) = 0;
  virtual void compress(const CompressParams& params) = 0;
  virtual void index_select(const IndexSelectParams& params) = 0;
  virtual void sparse_attention(const SparseAttentionParams& params) = 0;
  virtual void window_store(const WindowStoreParams& params) = 0;
  virtual void output_projection(const OutputProjectionParams& params) = 0;
  virtual void site_end(const SiteEndParams& params) = 0;
  virtual void route(const RouteParams& params) = 0;
  virtual void experts(const ExpertsParams& params) = 0;
  virtual void combine(const CombineParams& params) = 0;
  virtual void tap(const TapParams& params) = 0;
  virtual void logits(const LogitsParams& params) = 0;
  virtual void sample(const SampleParams& params) = 0;
  virtual void commit(const CommitParams& params) = 0;
};

/// Gives back what a backend has allocated (not placed) since it was made: for work outside of the
/// steps. Tensors of it must not be used afterwards. Not nested.
class AllocationScope {
 public:
  explicit AllocationScope(Backend& backend) : backend_(backend) { backend.begin_scope(); }
  ~AllocationScope() { backend_.end_scope(); }
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

 private:
  Backend& backend_;
};

/// The readable backend that the others are judged by. `pool` must outlive it.
std::unique_ptr<Backend> make_reference_backend(Numerics numerics, ThreadPool& pool);

}  // namespace deepinfer::ops
