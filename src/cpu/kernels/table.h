#pragma once

#include "cpu/kernels.h"
#include "cpu/kernels/experts.h"
#include "cpu/kernels/products.h"
#include "cpu/kernels/row_table.h"

namespace deepinfer::cpu {

/// The kernels over one vector type.
template <typename V>
constexpr Kernels make_kernels(const char* level) {
  return {.level = level,
          .products = wide_products<V>(),
          .experts = make_expert_kernels<V>(),
          .rows = make_row_kernels<V>()};
}

}  // namespace deepinfer::cpu
