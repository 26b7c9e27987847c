#pragma once

#include "cpu/kernels/decode.h"
#include "cpu/kernels/rows.h"
#include "cpu/products.h"

/// Products of stored weights with prepared rows (cpu/products.h defines their bits).
///
/// Few rows: bound by reading the weights. Each step of a weight row is decoded into two registers
/// and met by all rows; up to four outputs at a time keep enough independent sums in flight to hide
/// the latency of the multiply-adds. The steps must be inlined: their sums live in registers.
///
/// Many rows: bound by the multiply-adds. A tile of 32 outputs × one segment is decoded once, into
/// the second-level cache; a panel of kPanelOutputs of them and kPanelRows rows of inputs meet in
/// registers, one register of lanes per (row, output), so that every sum keeps its defined order
/// and the tree at a segment's end is the only extra work (one reduction per 64 multiply-adds).
namespace deepinfer::cpu {

/// Wide operands: two fp32 registers and two fused multiply-adds per step.
template <typename V>
struct Wide {
  using Vector = V;
  static constexpr int64_t kStepBytes = kStep * 4;
  static PairOf<V> load(const uint8_t* at) {
    const auto* p = reinterpret_cast<const float*>(at);
    return {V::load(p), V::load(p + 16)};
  }
  template <typename Pair>
  static void store(const Pair& pair, uint8_t* at) {
    auto* p = reinterpret_cast<float*>(at);
    pair.odd.store(p);
    pair.even.store(p + 16);
  }
  /// One step of kRows rows and kOutputs outputs, first all odd elements: the loads of each half
  /// are few enough to stay in registers beside the sums.
  template <int kRows, int kOutputs>
  [[gnu::always_inline]] static void panel_step(const uint8_t* weights, int64_t output_bytes,
                                                const uint8_t* const* x, int64_t at,
                                                V (&sum)[kRows][kOutputs]) {
    for (int64_t half = 0; half < kStepBytes; half += kStepBytes / 2) {
      V w[kOutputs];
      for (int o = 0; o < kOutputs; ++o) {
        w[o] = V::load(reinterpret_cast<const float*>(weights + o * output_bytes + half));
      }
      for (int r = 0; r < kRows; ++r) {
        const V input = V::load(reinterpret_cast<const float*>(x[r] + at + half));
        for (int o = 0; o < kOutputs; ++o) sum[r][o] = fma(w[o], input, sum[r][o]);
      }
    }
  }
};

/// The FP8 rule of spec/model.md §6 on one block: x → e4m3(clamp(x / scale, ±448)) · scale. The
/// scale is a power of two of at least 2^-22, so dividing is multiplying by its inverse, and
/// nothing that a flushed subnormal could change survives: it rounds to a zero code.
template <typename V>
void round_to_fp8(PairOf<V>& pair) {
  // Operand order: a NaN does not count, but stays one.
  const V largest = max(magnitude(pair.odd), max(magnitude(pair.even), V::set1(1e-4F)));
  const uint8_t code = ceil_to_e8m0(reduce_max(largest) * (1.0F / 448.0F));
  const V scale = from_bits(IntOf<V>::set1(code << 23));
  const V inverse = V::set1(inverse_power_of_code<V>(code));
  const V limit = V::set1(kE4M3Max);
  const auto round_lanes = [&](V x) {
    x = max(V::zero() - limit, min(limit, x * inverse));
    const V m = magnitude(x);
    // Subnormal codes are multiples of 2^-9: adding 1.5·2^14, whose ulp that is, rounds to them.
    const V anchor = V::set1(0x1.8p14F);
    const V small = (m + anchor) - anchor;
    // Normal ones keep three mantissa bits; a carry moves into the exponent as it should.
    const IntOf<V> bits = bits_of(m);
    const IntOf<V> even = shift_right<20>(bits) & IntOf<V>::set1(1);
    const IntOf<V> normal = (bits + even + IntOf<V>::set1(0x7FFFF)) & IntOf<V>::set1(-0x100000);
    const V rounded = select(less(m, V::set1(0x1p-6F)), small, from_bits(normal));
    const IntOf<V> sign = bits_of(x) & IntOf<V>::set1(INT32_MIN);
    return from_bits(bits_of(rounded) | sign) * scale;
  };
  pair.odd = round_lanes(pair.odd);
  pair.even = round_lanes(pair.even);
}

/// One row of inputs to `Operand`'s form; a block of the FP8 rule is a step.
template <typename Operand>
void prepare_row(const BFloat16* x, int64_t k, bool round_fp8, uint8_t* out) {
  using V = typename Operand::Vector;
  const int64_t whole = k / kStep;
  for (int64_t s = 0; s < steps_of(k); ++s) {
    auto pair = s < whole ? V::load_pair(x + s * kStep) : decode_tail<V>(x, s, k);
    if (round_fp8) round_to_fp8<V>(pair);
    Operand::store(pair, out + s * Operand::kStepBytes);
  }
}

template <typename V>
concept DecodesTwoSteps =
    requires(const uint8_t* p, PairOf<V> (&pairs)[2]) { V::load_e4m3_pairs(p, pairs); };

/// The scales of a segment of kOutputs outputs.
template <WeightKind kKind>
using ScaleRows = const typename ScaleOf<kKind>::Type* const*;

/// One step of kRows rows × kOutputs outputs, decoded as it is read.
template <typename V, WeightKind kKind, int kRows, int kOutputs>
[[gnu::always_inline]] inline void few_step(const uint8_t* const* row, ScaleRows<kKind> scale,
                                            int64_t step, int64_t i, const uint8_t* const* x,
                                            V (&sum)[kRows][kOutputs]) {
  PairOf<V> input[kRows];
  for (int r = 0; r < kRows; ++r) input[r] = Wide<V>::load(x[r] + step * Wide<V>::kStepBytes);
  for (int o = 0; o < kOutputs; ++o) {
    const auto w = decode_step<V, kKind>(row[o], step, scale[o][i]);
    for (int r = 0; r < kRows; ++r) {
      sum[r][o] = fma(w.even, input[r].even, fma(w.odd, input[r].odd, sum[r][o]));
    }
  }
}

/// Two steps: where the level decodes 64 FP8 codes for less than twice 32. Same sums, same order.
template <typename V, WeightKind kKind, int kRows, int kOutputs>
[[gnu::always_inline]] inline void few_two_steps(const uint8_t* const* row, ScaleRows<kKind> scale,
                                                 int64_t step, int64_t i, const uint8_t* const* x,
                                                 V (&sum)[kRows][kOutputs]) {
  if constexpr (kKind == WeightKind::kFp8 && DecodesTwoSteps<V>) {
    for (int o = 0; o < kOutputs; ++o) {
      PairOf<V> w[2];
      V::load_e4m3_pairs(row[o] + step * kStep, w);
      for (int u = 0; u < 2; ++u) {
        const V factor = V::set1(scale[o][i + u]);
        w[u].odd = w[u].odd * factor;
        w[u].even = w[u].even * factor;
        for (int r = 0; r < kRows; ++r) {
          const auto input = Wide<V>::load(x[r] + (step + u) * Wide<V>::kStepBytes);
          sum[r][o] = fma(w[u].even, input.even, fma(w[u].odd, input.odd, sum[r][o]));
        }
      }
    }
  } else {
    few_step<V, kKind, kRows, kOutputs>(row, scale, step, i, x, sum);
    few_step<V, kKind, kRows, kOutputs>(row, scale, step + 1, i + 1, x, sum);
  }
}

/// One segment of kRows rows × kOutputs outputs. `row[o]` is a weight row, `scale[o]` has the
/// scales of its segment. Rows are too short for the processor to see where reading goes on, so
/// the next kOutputs rows are prefetched while these are met, past a weight's end without effect:
/// at the same place of each row, or, of FP4, whose rows share a page or two, in the order of
/// memory, which the second-level cache's own prefetcher understands.
template <typename V, WeightKind kKind, int kRows, int kOutputs>
[[gnu::always_inline]] inline void few_segment(const uint8_t* const* row, ScaleRows<kKind> scale,
                                               int64_t row_bytes, int64_t begin, int64_t count,
                                               const uint8_t* const* x, V (&sum)[kRows][kOutputs]) {
  constexpr int kUnrolled = 4;
  constexpr int64_t kBytes = step_bytes(kKind) * kUnrolled;
  constexpr int64_t kLine = 64;
  for (auto& outputs : sum) {
    for (V& s : outputs) s = V::zero();
  }
  int64_t i = 0;
  for (; i + kUnrolled <= count; i += kUnrolled) {
    if constexpr (kKind == WeightKind::kFp4) {
      const uint8_t* next = row[0] + kOutputs * (row_bytes + (begin + i) * step_bytes(kKind));
      for (int64_t at = 0; at < kOutputs * kBytes; at += kLine) __builtin_prefetch(next + at);
    } else {
      for (int o = 0; o < kOutputs; ++o) {
        const uint8_t* next = row[o] + kOutputs * row_bytes + (begin + i) * step_bytes(kKind);
        for (int64_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(next + at);
      }
    }
#pragma GCC unroll 2
    for (int u = 0; u < kUnrolled; u += 2) {
      few_two_steps<V, kKind, kRows, kOutputs>(row, scale, begin + i + u, i + u, x, sum);
    }
  }
  for (; i < count; ++i) {
    few_step<V, kKind, kRows, kOutputs>(row, scale, begin + i, i, x, sum);
  }
}

/// One segment of any weight by way of decode_segment: tails, and scales without a fast factor.
template <typename V, WeightKind kKind, int kRows>
void few_segment_slow(const StoredWeight& w, int64_t o, int64_t begin, int64_t count,
                      const uint8_t* const* x, float* out) {
  V sum[kRows];
  for (V& s : sum) s = V::zero();
  decode_segment<V, kKind>(w, o, begin, count, [&](int64_t i, const auto& pair) {
    for (int r = 0; r < kRows; ++r) {
      const auto input = Wide<V>::load(x[r] + (begin + i) * Wide<V>::kStepBytes);
      sum[r] = fma(pair.even, input.even, fma(pair.odd, input.odd, sum[r]));
    }
  });
  for (int r = 0; r < kRows; ++r) out[r] = reduce_add(sum[r]);
}

/// The factors of one segment of kOutputs outputs of an FP8 weight.
template <typename V, int kOutputs>
struct FactorsOfOutputs {
  Factors<V> storage[kOutputs];

  /// Points `factor` to them; returns whether all are fast.
  bool load(const uint8_t* const* codes, int64_t begin, int64_t count,
            const float* (&factor)[kOutputs]) {
    bool is_fast = true;
    for (int o = 0; o < kOutputs; ++o) {
      if (o > 0 && codes[o] == codes[o - 1]) {  // outputs share scales
        factor[o] = factor[o - 1];
        continue;
      }
      storage[o].load(codes[o] + begin, count);
      is_fast = is_fast && storage[o].is_fast;
      factor[o] = storage[o].fast;
    }
    return is_fast;
  }
};

template <typename V, WeightKind kKind, int kRows, int kOutputs>
void few_outputs(const StoredWeight& w, int64_t first, const uint8_t* const* x, float* y,
                 int64_t y_stride) {
  static constexpr float kUnscaled[kSegmentSteps] = {};  // read, not used
  const int64_t steps = steps_of(w.k);
  const uint8_t* row[kOutputs];
  const uint8_t* codes[kOutputs] = {};
  for (int o = 0; o < kOutputs; ++o) row[o] = w.values + (first + o) * w.row_bytes;
  if constexpr (kKind == WeightKind::kFp8 || kKind == WeightKind::kFp4) {
    for (int o = 0; o < kOutputs; ++o) {
      codes[o] = w.scales + (first + o) / w.scale_rows * w.scale_row_bytes;
    }
  }
  const typename ScaleOf<kKind>::Type* scale[kOutputs];
  FactorsOfOutputs<V, kOutputs> factors;
  for (int64_t begin = 0; begin < steps; begin += kSegmentSteps) {
    const int64_t count = steps - begin < kSegmentSteps ? steps - begin : kSegmentSteps;
    bool fast = (begin + count) * kStep <= w.k;
    if constexpr (kKind == WeightKind::kFp8) {
      fast = factors.load(codes, begin, count, scale);
    } else if constexpr (kKind == WeightKind::kFp4) {
      for (int o = 0; o < kOutputs; ++o) {
        scale[o] = codes[o] + begin;
        __builtin_prefetch(scale[o] + kOutputs * w.scale_row_bytes);
      }
    } else {
      for (const float*& unscaled : scale) unscaled = kUnscaled;
    }
    float part[kRows][kOutputs];
    if (fast) {
      V sum[kRows][kOutputs];
      few_segment<V, kKind, kRows, kOutputs>(row, scale, w.row_bytes, begin, count, x, sum);
      for (int r = 0; r < kRows; ++r) reduce_add_all(sum[r], part[r]);
    } else {
      for (int o = 0; o < kOutputs; ++o) {
        float one[kRows];
        few_segment_slow<V, kKind, kRows>(w, first + o, begin, count, x, one);
        for (int r = 0; r < kRows; ++r) part[r][o] = one[r];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int o = 0; o < kOutputs; ++o) {
        float& out = y[r * y_stride + o];
        out = begin == 0 ? part[r][o] : out + part[r][o];
      }
    }
  }
}

template <typename V, WeightKind kKind, int kRows>
void few_rows(const StoredWeight& w, int64_t first, int64_t count, const PreparedRows& x, float* y,
              int64_t y_stride) {
  const uint8_t* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x.data + (x.index != nullptr ? x.index[r] : r) * x.row_bytes;
  }
  constexpr int kFit = V::kFewSums / kRows;
  constexpr int kOutputs = kFit > 4 ? 4 : kFit < 1 ? 1 : kFit;
  int64_t o = 0;
  for (; o + kOutputs <= count; o += kOutputs) {
    few_outputs<V, kKind, kRows, kOutputs>(w, first + o, rows, y + o, y_stride);
  }
  for (; o < count; ++o) few_outputs<V, kKind, kRows, 1>(w, first + o, rows, y + o, y_stride);
}

template <typename V, WeightKind kKind>
void few_of_kind(const StoredWeight& w, int64_t first, int64_t count, const PreparedRows& x,
                 int64_t rows, float* y, int64_t y_stride) {
  switch (rows) {
    case 1:
      return few_rows<V, kKind, 1>(w, first, count, x, y, y_stride);
    case 2:
      return few_rows<V, kKind, 2>(w, first, count, x, y, y_stride);
    case 3:
      return few_rows<V, kKind, 3>(w, first, count, x, y, y_stride);
    default:
      return few_rows<V, kKind, 4>(w, first, count, x, y, y_stride);
  }
}

template <typename V>
void dots_few(const StoredWeight& w, int64_t first, int64_t count, const PreparedRows& x,
              int64_t rows, float* y, int64_t y_stride) {
  switch (w.kind) {
    case WeightKind::kF32:
      return few_of_kind<V, WeightKind::kF32>(w, first, count, x, rows, y, y_stride);
    case WeightKind::kBF16:
      return few_of_kind<V, WeightKind::kBF16>(w, first, count, x, rows, y, y_stride);
    case WeightKind::kFp8:
      return few_of_kind<V, WeightKind::kFp8>(w, first, count, x, rows, y, y_stride);
    case WeightKind::kFp4:
      return few_of_kind<V, WeightKind::kFp4>(w, first, count, x, rows, y, y_stride);
  }
}

/// Decodes one segment of `count` outputs into a tile: output after output, step after step. The
/// outputs up to the next multiple of a panel are zero.
template <typename Operand>
void decode_tile(const StoredWeight& w, int64_t first, int64_t count, int64_t begin, int64_t steps,
                 uint8_t* tile) {
  using V = typename Operand::Vector;
  constexpr int64_t kOutputBytes = kSegmentSteps * Operand::kStepBytes;
  for (int64_t o = 0; o < count; ++o) {
    uint8_t* out = tile + o * kOutputBytes;
    const auto put = [&](int64_t i, const auto& pair) {
      Operand::store(pair, out + i * Operand::kStepBytes);
    };
    switch (w.kind) {
      case WeightKind::kF32:
        decode_segment<V, WeightKind::kF32>(w, first + o, begin, steps, put);
        break;
      case WeightKind::kBF16:
        decode_segment<V, WeightKind::kBF16>(w, first + o, begin, steps, put);
        break;
      case WeightKind::kFp8:
        decode_segment<V, WeightKind::kFp8>(w, first + o, begin, steps, put);
        break;
      case WeightKind::kFp4:
        decode_segment<V, WeightKind::kFp4>(w, first + o, begin, steps, put);
        break;
    }
  }
  for (int64_t o = count; o % V::kPanelOutputs != 0; ++o) {
    __builtin_memset(tile + o * kOutputBytes, 0, static_cast<size_t>(steps * Operand::kStepBytes));
  }
}

/// kRows rows × one panel of outputs over one segment; part[r][o] gets the sums.
template <typename Operand, int kRows>
void panel_segment(const uint8_t* weights, const uint8_t* const* x, int64_t steps,
                   float (*part)[Operand::Vector::kPanelOutputs]) {
  using V = typename Operand::Vector;
  constexpr int kOutputs = V::kPanelOutputs;
  constexpr int64_t kOutputBytes = kSegmentSteps * Operand::kStepBytes;
  V sum[kRows][kOutputs];
  for (auto& outputs : sum) {
    for (V& s : outputs) s = V::zero();
  }
  for (int64_t at = 0; at < steps * Operand::kStepBytes; at += Operand::kStepBytes) {
    Operand::template panel_step<kRows, kOutputs>(weights + at, kOutputBytes, x, at, sum);
  }
  for (int r = 0; r < kRows; ++r) reduce_add_all(sum[r], part[r]);
}

/// All rows against one decoded segment of `count` outputs.
template <typename Operand>
struct TileJob {
  using V = typename Operand::Vector;
  const uint8_t* tile;
  int64_t count;  // outputs
  int64_t begin;  // first step
  int64_t steps;
  const PreparedRows& x;
  float* y;
  int64_t y_stride;

  template <int kRows>
  void rows(int64_t first_row) const {
    constexpr int kOutputs = V::kPanelOutputs;
    const uint8_t* inputs[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r;
      inputs[r] = x.data + (x.index != nullptr ? x.index[row] : row) * x.row_bytes +
                  begin * Operand::kStepBytes;
    }
    for (int64_t o = 0; o < count; o += kOutputs) {
      float part[kRows][kOutputs];
      panel_segment<Operand, kRows>(tile + o * kSegmentSteps * Operand::kStepBytes, inputs, steps,
                                    part);
      const int64_t valid = count - o < kOutputs ? count - o : kOutputs;
      for (int r = 0; r < kRows; ++r) {
        float* out = y + (first_row + r) * y_stride + o;
        for (int64_t i = 0; i < valid; ++i) {
          out[i] = begin == 0 ? part[r][i] : out[i] + part[r][i];
        }
      }
    }
  }

  /// The rows left over by whole panels: `left` < kRows + 1.
  template <int kRows>
  void rest(int64_t first_row, int64_t left) const {
    if constexpr (kRows > 0) {
      if (left == kRows) return rows<kRows>(first_row);
      rest<kRows - 1>(first_row, left);
    }
  }
};

template <typename Operand>
void dots_many(const StoredWeight& w, int64_t first, int64_t count, const PreparedRows& x,
               int64_t rows, uint8_t* scratch, float* y, int64_t y_stride) {
  constexpr int kRows = Operand::Vector::kPanelRows;
  const int64_t steps = steps_of(w.k);
  for (int64_t begin = 0; begin < steps; begin += kSegmentSteps) {
    const int64_t segment = steps - begin < kSegmentSteps ? steps - begin : kSegmentSteps;
    decode_tile<Operand>(w, first, count, begin, segment, scratch);
    const TileJob<Operand> job{scratch, count, begin, segment, x, y, y_stride};
    int64_t row = 0;
    for (; row + kRows <= rows; row += kRows) job.template rows<kRows>(row);
    job.template rest<kRows - 1>(row, rows - row);
  }
}

template <typename V>
void store_bf16(const float* x, int64_t n, BFloat16* out) {
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) { store(load(x + i), out + i); });
}

template <typename V>
constexpr ProductKernels wide_products() {
  return {.prepare_wide = prepare_row<Wide<V>>,
          .prepare_narrow = nullptr,
          .few = dots_few<V>,
          .many_wide = dots_many<Wide<V>>,
          .many_narrow = nullptr,
          .store_bf16 = store_bf16<V>};
}

}  // namespace deepinfer::cpu
