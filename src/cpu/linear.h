#pragma once

#include <span>

#include "cpu/context.h"
#include "tensor/tensor.h"

namespace deepinfer::cpu {

/// What a product's input gets before it (spec/model.md §10 item 3).
enum class InputRounding : uint8_t { kNone, kFp8 };

/// y[b, o] = Σ_i weight[o, i] · x[b, i] as cpu/products.h defines the sum. Any stored form of
/// weight; x and y may have row strides.
struct Product {
  QuantView weight;  // [out, in]
  TensorView x;      // [B, in] bf16
  TensorView y;      // [B, out] out: bf16 (rounded) or f32
  InputRounding rounding = InputRounding::kNone;
};

/// Products of the same number of rows, computed side by side. Products that follow each other and
/// read the same x with the same rounding prepare it once. Takes shared scratch memory.
void linear(const Context& context, std::span<const Product> products);
inline void linear(const Context& context, const Product& product) {
  linear(context, std::span(&product, 1));
}

/// How the kernels read a weight.
StoredWeight stored_weight(const QuantView& weight);

}  // namespace deepinfer::cpu
