#pragma once

#include <climits>

#include "cuda/device/math.cuh"
#ifdef __CUDACC__
#include "cuda/device/reduce.cuh"
#endif

/// The k best of a list in linear time, exactly: scores become whole numbers of the same order, and
/// three passes over them find the digits of the k-th largest. Equal scores go to the lowest place.
namespace deepinfer::cuda {

/// Greater scores have greater keys, equal ones (-0 and +0 too) equal keys. Never 0, which stands
/// for what does not compete; NaN is not allowed.
DEEPINFER_HD uint32_t order_key(float score) {
  const uint32_t bits = to_bits(score + 0.0F);  // -0 becomes +0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
DEEPINFER_HD float score_of_key(uint32_t key) {
  return from_bits((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

/// Keys in digits of 11, 11 and 10 bits, most significant first.
inline constexpr int kDigits = 3;
inline constexpr int kBins = 2048;
DEEPINFER_HD int digit_shift(int digit) {
  return digit == 0 ? 21 : (digit == 1 ? 10 : 0);
}
DEEPINFER_HD uint32_t digit_of(uint32_t key, int digit) {
  return digit == 2 ? key & 0x3FFU : (key >> digit_shift(digit)) & 0x7FFU;
}
/// Whether the digits in front of `digit` are those of `prefix` (whose lower bits are 0).
DEEPINFER_HD bool has_prefix(uint32_t key, uint32_t prefix, int digit) {
  return digit == 0 || ((key ^ prefix) >> digit_shift(digit - 1)) == 0;
}

/// What is taken: keys above `key`, and of those equal to it the first `ties`.
struct Cut {
  uint32_t key;
  uint32_t ties;
};

#ifdef __CUDACC__
/// Finds, among bins from the highest down, the one in which a running sum reaches its goal:
/// `reaches(sum before the bin, bin's own)` is false until then and true in exactly one bin or in
/// none. Returns the bin (-1: none) and the sum before it, in all threads. bins: [kBins] in shared
/// memory; of_warp: [kThreads / 32].
template <typename T>
struct FoundBin {
  int bin;
  T before;
};
template <int kThreads, typename T, typename Reaches>
__device__ __forceinline__ FoundBin<T> find_bin(const T* bins, T* of_warp, Reaches&& reaches) {
  constexpr int kPerThread = kBins / kThreads;
  __shared__ FoundBin<T> found;
  if (threadIdx.x == 0) found = {-1, 0};
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kPerThread;
  T mine = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) mine += bins[top - i];
  T total = 0;
  T before = block_exclusive_sum<kThreads>(mine, of_warp, total);  // its barriers order `found`
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const T own = bins[top - i];
    if (own != 0 && reaches(before, own)) found = {top - i, before};
    before += own;
  }
  __syncthreads();
  const FoundBin<T> result = found;
  __syncthreads();
  return result;
}

/// Shared memory of a block's selection.
template <int kThreads>
struct SelectMemory {
  uint32_t bins[kBins];
  uint32_t of_warp[kThreads / kWarp];
};

/// The cut that takes the `k` largest of key(0) … key(n - 1) (all, if they are fewer; keys of 0 do
/// not compete). Called by the whole block.
template <int kThreads, typename Key>
__device__ __forceinline__ Cut find_cut(Key&& key, int n, uint32_t k,
                                        SelectMemory<kThreads>& memory) {
  uint32_t prefix = 0;
  uint32_t wanted = k;
  if (k == 0) return {UINT_MAX, 0};
#pragma unroll 1
  for (int digit = 0; digit < kDigits; ++digit) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) memory.bins[i] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      const uint32_t value = key(i);
      if (value != 0 && has_prefix(value, prefix, digit)) {
        atomicAdd(&memory.bins[digit_of(value, digit)], 1U);
      }
    }
    __syncthreads();
    const FoundBin<uint32_t> found =
        find_bin<kThreads>(memory.bins, memory.of_warp, [wanted](uint32_t before, uint32_t own) {
          return before < wanted && before + own >= wanted;
        });
    if (found.bin < 0) return {0, 0};  // fewer than k compete (in the first pass only)
    prefix |= static_cast<uint32_t>(found.bin) << digit_shift(digit);
    wanted -= found.before;
  }
  return {prefix, wanted};
}

/// Calls take(place, rank) for every i that the cut takes, rank counting them by ascending i;
/// returns their number in all threads. Each warp owns a stretch of places.
template <int kThreads, typename Key, typename Take>
__device__ __forceinline__ int take_ascending(Key&& key, int n, Cut cut, Take&& take,
                                              uint32_t* of_warp) {
  constexpr int kWarps = kThreads / kWarp;
  const int stretch = (n + kThreads - 1) / kThreads * kWarp;  // a multiple of the warp
  const int begin = min(warp_id() * stretch, n);
  const int end = min(begin + stretch, n);
  uint32_t above = 0;
  uint32_t equal = 0;
  for (int base = begin; base < end; base += kWarp) {
    const int i = base + lane_id();
    const uint32_t value = i < end ? key(i) : 0;
    above += __popc(__ballot_sync(kAllLanes, value > cut.key));
    equal += __popc(__ballot_sync(kAllLanes, value == cut.key && value != 0));
  }
  // Every lane of a warp has the same counts; the sums over warps need one lane of each.
  uint32_t total_above = 0;
  uint32_t total_equal = 0;
  uint32_t above_before = 0;
  uint32_t equal_before = 0;
  for (int pass = 0; pass < 2; ++pass) {
    if (lane_id() == 0) of_warp[warp_id()] = pass == 0 ? above : equal;
    __syncthreads();
    uint32_t before = 0;
    uint32_t total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp_id()) before += of_warp[w];
      total += of_warp[w];
    }
    __syncthreads();
    (pass == 0 ? total_above : total_equal) = total;
    (pass == 0 ? above_before : equal_before) = before;
  }
  uint32_t rank = above_before + min(equal_before, cut.ties);
  const uint32_t below = (1U << lane_id()) - 1;
  for (int base = begin; base < end; base += kWarp) {
    const int i = base + lane_id();
    const uint32_t value = i < end ? key(i) : 0;
    const bool is_equal = value == cut.key && value != 0;
    const uint32_t equals = __ballot_sync(kAllLanes, is_equal);
    const bool taken =
        value > cut.key || (is_equal && equal_before + __popc(equals & below) < cut.ties);
    const uint32_t all = __ballot_sync(kAllLanes, taken);
    if (taken) take(i, static_cast<int>(rank + __popc(all & below)));
    rank += __popc(all);
    equal_before += __popc(equals);
  }
  return static_cast<int>(total_above + min(total_equal, cut.ties));
}
#endif

}  // namespace deepinfer::cuda
