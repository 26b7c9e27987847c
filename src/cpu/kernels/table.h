#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/products.h"

namespace deepinfer::cpu {

/// The kernels over one vector type.
template <typename V>
constexpr Kernels make_kernels(const char* level) {
  return {.level = level, .products = wide_products<V>()};
}

}  // namespace deepinfer::cpu
