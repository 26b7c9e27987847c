#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/backend.h"

namespace deepinfer::model {

/// A named intermediate, copied to the host: F32, I32, I64 or U8.
struct TracedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

/// Collects the intermediates of one step that runs one whole sequence from position 0 in order,
/// under the names of the golden traces. Waits for the backend at every tensor.
class Trace {
 public:
  explicit Trace(ops::Backend& backend) : backend_(backend) {}

  /// Memory for an operation's trace operand.
  Tensor allocate(DType dtype, const Shape& shape) { return backend_.allocate(dtype, shape); }
  /// Copies a tensor; bf16 becomes F32. Names that golden traces keep for some positions only
  /// ("q@rows") hold all.
  void add(const std::string& name, const TensorView& tensor);
  /// The rows of `tensor` [B, …] that complete an entry, in entry order.
  void add_entry_rows(const std::string& name, const TensorView& tensor, int32_t ratio);
  /// Window keys of the step, dequantised: codes [B, D] e4m3, scales [B, D/32] e8m0.
  void add_window(const std::string& name, const TensorView& codes, const TensorView& scales);
  /// Entries and index keys of slot 0's first `num_tokens` tokens, dequantised.
  void add_pages(const std::string& prefix, const ops::CompressedPages& pages,
                 const ops::SlotState& slots, int64_t num_tokens);
  /// Per row a list of numbers, each standing for `block_size` entries, as a bit set [B,
  /// ceil(entries/8)] U8: bit c mod 8 of byte c / 8.
  void add_bits(const std::string& name, const TensorView& lists, const TensorView& counts,
                int64_t block_size, int64_t num_entries);
  /// Joins tensors [B, d] to one [B, parts·d].
  void add_joined(const std::string& name, const std::vector<TensorView>& parts);
  /// Appends an i64 tensor [B, c] as the next layer of [B, layers, c].
  void add_stacked(const std::string& name, const TensorView& tensor);

  std::vector<TracedTensor> take() { return std::move(tensors_); }

 private:
  /// A tensor where this thread can read it: itself, or a copy that lives until the next call.
  TensorView on_host(const TensorView& tensor, size_t slot = 0);
  float* add_f32(const std::string& name, std::vector<int64_t> shape);

  ops::Backend& backend_;
  std::vector<Tensor> copies_;  // see on_host()
  std::vector<TracedTensor> tensors_;
};

}  // namespace deepinfer::model
