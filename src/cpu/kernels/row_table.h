#pragma once

#include "cpu/kernels/attention.h"
#include "cpu/kernels/index.h"
#include "cpu/kernels/limits.h"
#include "cpu/kernels/rotation.h"
#include "cpu/kernels/rows.h"
#include "cpu/kernels/sample.h"
#include "cpu/kernels/site.h"
#include "cpu/row_kernels.h"

namespace deepinfer::cpu {

/// The row kernels over one vector type.
template <typename V>
constexpr RowKernels make_row_kernels() {
  return {.evaluate = evaluate<V>,
          .sum_squares = sum_squares<V, BFloat16>,
          .rms_norm = rms_norm_row<V, BFloat16, BFloat16>,
          .rms_norm_f32 = rms_norm_row<V, BFloat16, float>,
          .rotation = rotation<V>,
          .rotate = rotate_pairs<V>,
          .quantize_fp8 = quantize_fp8_row<V>,
          .quantize_fp4_index = quantize_fp4_index_row<V>,
          .quantize_fp4_kv = quantize_fp4_kv_row<V>,
          .collapse = collapse_row<V>,
          .mix = mix_row<V>,
          .expand = expand_row<V>,
          .mean_streams = mean_streams_row<V>,
          .pool_pair = pool_pair_row<V>,
          .gate = gate_row<V>,
          .attend = attend<V>,
          .pack_query = pack_query<V>,
          .pack_keys = pack_keys<V>,
          .score_keys = score_keys<V>,
          .find_above = find_above<V>,
          .exp_double = exp_double<V>,
          .gumbel_noise = gumbel_double<V>,
          .largest = largest_logit<V>,
          .log_sum_exp = log_sum_exp<V>,
          .read_all = read_all<V>,
          .multiply_add = multiply_add<V>};
}

}  // namespace deepinfer::cpu
