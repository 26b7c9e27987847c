#pragma once

#include "cpu/kernels/decode.h"
#include "cpu/kernels/rows.h"
#include "cpu/products.h"

/// Products of stored weights with prepared rows (cpu/products.h defines their bits).
///
/// Few rows: bound by reading the weights. Each step of a weight row is decoded into two registers
/// and met by all rows; four outputs at a time keep enough independent sums in flight to hide the
/// latency of the multiply-adds.
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
  struct Step {
    V odd, even;
  };
  static Step load(const uint8_t* at) {
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
  static void panel_step(const uint8_t* weights, int64_t output_bytes, const uint8_t* const* x,
                         int64_t at, V (&sum)[kRows][kOutputs]) {
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

/// x → e4m3(clamp(x / scale, ±448)) · scale, scale a power of two: rounding x at the bit that the
/// code's last mantissa bit stands for. Normal codes keep three mantissa bits below the leading
/// one; below 2^-6·scale codes are multiples of 2^-9·scale. Adding and subtracting 1.5·2^23 units
/// rounds to nearest even, since |x| < 2^22 units.
template <typename V, typename Pair>
void round_to_fp8(Pair& pair) {
  using I = IntOf<V>;
  V largest = max(magnitude(pair.odd), magnitude(pair.even));
  const float amax = reduce_max(largest);
  const float scaled = (amax > 1e-4F ? amax : 1e-4F) * (1.0F / 448.0F);
  int32_t bits = 0;
  __builtin_memcpy(&bits, &scaled, sizeof bits);
  // ue8m0: the exponent, plus one if the mantissa is not 0.
  const int32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0 ? 1 : 0);
  const V limit = from_bits(I::set1((exponent + 8) << 23)) * V::set1(1.75F);  // 448 · scale
  const I smallest = I::set1((exponent - 6) << 23);                           // 2^-6 · scale
  const auto round_lanes = [&](V x) {
    const I sign = bits_of(x) & I::set1(INT32_MIN);
    V a = min(magnitude(x), limit);
    const I binade = bits_of(a) & I::set1(0x7F800000);
    const I floor = select(less(from_bits(binade), from_bits(smallest)), smallest, binade);
    // 1.5·2^23 units of the last kept bit, which is 2^-3 of the binade.
    const V magic = from_bits(floor + I::set1(20 << 23)) * V::set1(1.5F);
    a = (a + magic) - magic;
    return from_bits(bits_of(a) | sign);
  };
  pair.odd = round_lanes(pair.odd);
  pair.even = round_lanes(pair.even);
}

/// One row of inputs to `Operand`'s form. The FP8 rule of spec/model.md §6, blocks of 32 = a step:
/// scale 2^e >= amax / 448 with amax at least 1e-4, so that nothing here is subnormal that §6
/// would keep: an input below 2^-126 rounds to a zero code.
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

/// kRows rows × kOutputs outputs of one segment, decoded as it is read. `row[o]` is a weight row,
/// `factor[o]` the factors of its segment.
template <typename V, WeightKind kKind, int kRows, int kOutputs>
void few_segment(const uint8_t* const* row, const float* const* factor, int64_t begin,
                 int64_t count, const uint8_t* const* x, V (&sum)[kRows][kOutputs]) {
  for (auto& outputs : sum) {
    for (V& s : outputs) s = V::zero();
  }
  for (int64_t i = 0; i < count; ++i) {
    typename Wide<V>::Step input[kRows];
    for (int r = 0; r < kRows; ++r) {
      input[r] = Wide<V>::load(x[r] + (begin + i) * Wide<V>::kStepBytes);
    }
    for (int o = 0; o < kOutputs; ++o) {
      const auto w = decode_step<V, kKind>(row[o], begin + i, factor[o][i]);
      for (int r = 0; r < kRows; ++r) {
        sum[r][o] = fma(w.even, input[r].even, fma(w.odd, input[r].odd, sum[r][o]));
      }
    }
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

template <typename V, WeightKind kKind, int kRows, int kOutputs>
void few_outputs(const StoredWeight& w, int64_t first, const uint8_t* const* x, float* y,
                 int64_t y_stride) {
  constexpr bool kScaled = kKind == WeightKind::kFp8 || kKind == WeightKind::kFp4;
  const int64_t steps = steps_of(w.k);
  const uint8_t* row[kOutputs];
  for (int o = 0; o < kOutputs; ++o) row[o] = w.values + (first + o) * w.row_bytes;
  for (int64_t begin = 0; begin < steps; begin += kSegmentSteps) {
    const int64_t count = steps - begin < kSegmentSteps ? steps - begin : kSegmentSteps;
    const bool padded = (begin + count) * kStep > w.k;
    bool fast = !padded;
    [[maybe_unused]] Factors<V> factors[kScaled ? kOutputs : 1];
    const float* factor[kOutputs] = {};
    if constexpr (kScaled) {
      for (int o = 0; o < kOutputs; ++o) {
        const uint8_t* codes = w.scales + (first + o) / w.scale_rows * w.scale_row_bytes + begin;
        factors[o].load(codes, count);
        fast = fast && factors[o].is_fast;
        factor[o] = factors[o].fast;
      }
    } else {
      static constexpr float kOnes[kSegmentSteps] = {};  // read, not used
      for (const float*& f : factor) f = kOnes;
    }
    float part[kRows][kOutputs];
    if (fast) {
      V sum[kRows][kOutputs];
      few_segment<V, kKind, kRows, kOutputs>(row, factor, begin, count, x, sum);
      for (int r = 0; r < kRows; ++r) {
        for (int o = 0; o < kOutputs; ++o) part[r][o] = reduce_add(sum[r][o]);
      }
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
  constexpr int kOutputs = V::kFewOutputs;
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
constexpr ProductKernels wide_products() {
  return {.prepare_wide = prepare_row<Wide<V>>,
          .prepare_narrow = nullptr,
          .few = dots_few<V>,
          .many_wide = dots_many<Wide<V>>,
          .many_narrow = nullptr};
}

}  // namespace deepinfer::cpu
