#pragma once

#include "cuda/device/formats.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/rows.cuh"

/// The keys of sparse attention: which ones a row sees, and reading a tile of them as bf16.
namespace deepinfer::cuda {

struct AttentionKeys {
  RowsView rows;
  PagesView pages;  // of the selected entries
  int num_rows;     // that have keys in this step
  int head_dim;
  int64_t window;
  const int64_t* window_floor;  // [B]; may be null
  const uint8_t* ring_codes;    // [S, R, D] e4m3
  int64_t ring_codes_stride;
  const uint8_t* ring_scales;  // [S, R, D/32]
  int64_t ring_scales_stride;
  const int64_t* ring_tags;  // [S, R]
  int64_t ring_tags_stride;
  int32_t ring_rows;
  const uint8_t* window_codes;  // [B, D] e4m3
  int64_t window_codes_stride;
  const uint8_t* window_scales;  // [B, D/32]
  int64_t window_scales_stride;
  const int32_t* selected;  // [B, K]; may be null
  int64_t selected_stride;
  const int32_t* num_selected;  // [B]
};

/// Where a key is stored.
struct KeyPlace {
  const uint8_t* codes;
  const uint8_t* scales;
};

/// A row's list: window keys, oldest first (FP8), then entries, ascending (FP4).
struct KeyCounts {
  int window;
  int total;
};

/// The key of row b at position t of its window, if there is one.
__device__ __forceinline__ bool find_window_key(const AttentionKeys& a, int64_t b, int64_t t,
                                                KeyPlace& place) {
  if (t >= a.rows.span_first[b]) {
    const int64_t row = row_at(a.rows, b, t, a.num_rows);
    if (row < 0) return false;
    place = {a.window_codes + row * a.window_codes_stride,
             a.window_scales + row * a.window_scales_stride};
    return true;
  }
  const int64_t slot = a.rows.slot[b];
  const int64_t row = t % a.ring_rows;
  if (a.ring_tags[slot * a.ring_tags_stride + row] != t) return false;
  place = {a.ring_codes + slot * a.ring_codes_stride + row * a.head_dim,
           a.ring_scales + slot * a.ring_scales_stride + row * (a.head_dim / 32)};
  return true;
}

/// Fills a row's list in shared memory, [window + K]; the caller synchronises. Warp 0 finds the
/// window's keys, closing gaps; then all threads look up the entries behind them.
template <int kThreads>
__device__ __forceinline__ KeyCounts list_keys(const AttentionKeys& a, int64_t b, KeyPlace* keys) {
  __shared__ int num_window;
  if (warp_id() == 0) {
    const int64_t position = a.rows.position[b];
    int64_t oldest = max(int64_t{0}, position - a.window + 1);
    if (a.window_floor != nullptr) oldest = max(oldest, a.window_floor[b]);
    int count = 0;
    for (int64_t base = oldest; base <= position; base += kWarp) {
      const int64_t t = base + lane_id();
      KeyPlace place{};
      const bool found = t <= position && find_window_key(a, b, t, place);
      const uint32_t all = __ballot_sync(kAllLanes, found);
      if (found) keys[count + __popc(all & ((1U << lane_id()) - 1))] = place;
      count += __popc(all);
    }
    if (lane_id() == 0) num_window = count;
  }
  __syncthreads();
  const int window = num_window;
  const int entries = a.selected == nullptr ? 0 : a.num_selected[b];
  const int64_t slot = a.rows.slot[b];
  for (int i = static_cast<int>(threadIdx.x); i < entries; i += kThreads) {
    const EntryPlace place = place_of(a.pages, slot, a.selected[b * a.selected_stride + i]);
    // A missing page is a bug of the caller: the first one is read instead of memory outside.
    const EntryPlace safe = {max(place.page, 0), place.row};
    keys[window + i] = {row_of(a.pages.entry_codes, safe), row_of(a.pages.entry_scales, safe)};
  }
  return {window, window + entries};
}

/// A lane's 16 consecutive channels of a key as stored.
struct RawKey {
  uint4 codes;  // FP8: 16 bytes; FP4: 8 bytes in x, y
  uint32_t scale;
};

__device__ __forceinline__ RawKey load_key(const KeyPlace& key, bool is_fp8, int lane) {
  RawKey raw;
  if (is_fp8) {
    raw.codes = *reinterpret_cast<const uint4*>(key.codes + 16 * lane);
    raw.scale = key.scales[lane / 2];
  } else {
    const uint2 codes = *reinterpret_cast<const uint2*>(key.codes + 8 * lane);
    raw.codes = make_uint4(codes.x, codes.y, 0, 0);
    raw.scale = key.scales[lane];
  }
  return raw;
}

/// Exact bf16 values of the 16 channels.
__device__ __forceinline__ void expand_key(const RawKey& raw, bool is_fp8, uint32_t (&pairs)[8]) {
  const uint32_t words[4] = {raw.codes.x, raw.codes.y, raw.codes.z, raw.codes.w};
  if (is_fp8) {
    const uint32_t scale = raw.scale == 0 ? 0x00400040U : raw.scale * 0x00800080U;  // e8m0
    constexpr uint32_t kBias = 0x7B807B80;                                          // 2^120
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Bf16x4 small = e4m3x4_to_small_bf16(words[i]);
      pairs[2 * i] = multiply_bf16x2(multiply_bf16x2(small.low, kBias), scale);
      pairs[2 * i + 1] = multiply_bf16x2(multiply_bf16x2(small.high, kBias), scale);
    }
  } else {
    const uint32_t scale =
        (to_bits(decode_e4m3(static_cast<uint8_t>(raw.scale))) >> 16) * 0x00010001U;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Bf16x4 values = e2m1x4_to_bf16((words[i / 2] >> (16 * (i % 2))) & 0xFFFF);
      pairs[2 * i] = multiply_bf16x2(values.low, scale);
      pairs[2 * i + 1] = multiply_bf16x2(values.high, scale);
    }
  }
}

/// Keys [first, first + 64) of the list as rows of [64, stride] bf16 in shared memory; keys beyond
/// the list and channels beyond head_dim are zeros. A warp reads a key at a time, a lane 16
/// channels.
template <int kWarps, int kDim, int kStride>
__device__ __forceinline__ void load_key_tile(const KeyPlace* keys, KeyCounts counts, int first,
                                              int head_dim, uint16_t* tile) {
  constexpr int kBatch = 4;  // keys whose loads are under way at once
  constexpr int kTileKeys = 64;
  const int lane = lane_id();
  const bool is_used = 16 * lane < kDim;
  const bool has_channels = 16 * lane < head_dim;
#pragma unroll 1
  for (int base = warp_id(); base < kTileKeys; base += kWarps * kBatch) {
    RawKey raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int k = first + base + i * kWarps;
      raw[i] = {};
      if (k < counts.total && has_channels) raw[i] = load_key(keys[k], k < counts.window, lane);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int j = base + i * kWarps;
      const int k = first + j;
      uint32_t pairs[8] = {};
      if (k < counts.total && has_channels) expand_key(raw[i], k < counts.window, pairs);
      if (!is_used) continue;
      uint16_t* to = tile + j * kStride + 16 * lane;
      const uint4 low = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      const uint4 high = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
      // Eight lanes write 16 bytes each at once; half of them start with their second half, so that
      // all 32 banks are used.
      const bool swap = (lane & 4) != 0;
      *reinterpret_cast<uint4*>(to + (swap ? 8 : 0)) = swap ? high : low;
      *reinterpret_cast<uint4*>(to + (swap ? 0 : 8)) = swap ? low : high;
    }
  }
}

/// Asks for the tile from `first` on to be brought near: a line per thread.
__device__ __forceinline__ void prefetch_key_tile(const KeyPlace* keys, KeyCounts counts, int first,
                                                  int head_dim) {
  const int k = first + static_cast<int>(threadIdx.x) / 4;
  const int line = static_cast<int>(threadIdx.x) % 4 * 128;
  if (k >= counts.total) return;
  if (line < (k < counts.window ? head_dim : head_dim / 2)) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(keys[k].codes + line));
  }
}

}  // namespace deepinfer::cuda
