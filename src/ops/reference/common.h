#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

/// What the reference operations share. They read rows of any stored type into fp32, compute in the
/// order that spec/model.md writes, and round where it says "→ act".
namespace deepinfer::ops::reference {

struct Context {
  Numerics numerics = Numerics::kEngine;
  ThreadPool* pool = nullptr;  // never null in use

  /// One "→ act" rounding.
  float act(float value) const {
    return numerics == Numerics::kEngine ? round_to_bfloat16(value) : value;
  }
};

/// Σ a[i]·b[i] in fp32: sixteen lanes, lane l adding elements l, l + 16, … in order, then a fixed
/// tree. The order depends on n alone.
float dot(const float* a, const float* b, int64_t n);

/// Row `i` of a bf16 or fp32 tensor (all trailing axes flattened) as fp32.
void load_row(const TensorView& tensor, int64_t i, std::span<float> out);
std::vector<float> load_row(const TensorView& tensor, int64_t i);
/// All rows, one after the other.
std::vector<float> load_rows(const TensorView& tensor);
/// Stores fp32 values to a bf16 (rounding) or fp32 row.
void store_row(std::span<const float> values, const TensorView& tensor, int64_t i);
void store_rows(std::span<const float> values, const TensorView& tensor);
/// Row `i` of a buffer of rows of `size` values.
inline std::span<float> row_of(std::span<float> rows, int64_t i, size_t size) {
  return rows.subspan(static_cast<size_t>(i) * size, size);
}

/// Row `o` of a weight, dequantised exactly.
void dequantize_row(const QuantView& weight, int64_t o, std::span<float> out);

/// What a product's input gets before it.
enum class InputRounding { kNone, kFp8 };
/// What a product's result gets.
enum class ResultRounding { kNone, kAct };

/// y[b, o] = Σ_i W[o, i]·x[b, i] for rows x [B, in] and y [B, out] in fp32 buffers; inputs are
/// rounded by the FP8 rule in engine numerics if asked (spec/model.md §10 item 3). Threads split
/// the output features.
void linear(const Context& context, const QuantView& weight, std::span<const float> x,
            int64_t num_rows, std::span<float> y, InputRounding input, ResultRounding result);

/// Σ_j coefficients[j]·streams[j] → act: one row's streams [m, d] to x_in [d] (spec/model.md §2).
std::vector<float> collapse(const Context& context, const TensorView& streams,
                            const float* coefficients);

/// rms(x; w) of spec/model.md §1 in place, rounded to act.
void rms_norm(const Context& context, std::span<float> x, const TensorView& weight, float eps);

/// Rotates the last 2·inv_freq.dim(0) channels of x by position t in place, then rounds them to act
/// (spec/model.md §3); `inverse` rotates by -t.
void rotate(const Context& context, std::span<float> x, const Rope& rope, int64_t position,
            bool inverse = false);

float sigmoid(float x);

}  // namespace deepinfer::ops::reference
