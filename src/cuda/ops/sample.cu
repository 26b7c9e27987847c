#include <climits>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "cuda/device/select.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"
#include "ops/noise.h"

// One block per row, in passes over the vocabulary (spec/model.md §10 items 13 to 16). Penalties,
// bias and masks are applied anew in every pass, so nothing but the results is written. Filters are
// cuts in the order "logit descending, id ascending": top-k by counts, top-p by whole-number
// masses, both digit by digit (device/select.cuh); no sort. Sums of exp are doubles in an order
// that the vocabulary's size fixes.
namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kMaxTop = 1024;   // log-probabilities reported per row
constexpr double kNoMass = 23;  // e^-23·2^32 < 1

struct SampleArgs {
  const float* logits;  // [n, V]
  int64_t logits_stride;
  int vocab;
  const ops::SampleRow* rows;  // [n]
  const int32_t* slot;         // [n]
  const int64_t* position;     // [n]
  const int32_t* counts;       // [S, V]; may be null
  int64_t counts_stride;
  const float* bias;  // [n, V]; may be null
  int64_t bias_stride;
  const int32_t* mask;  // [n, ceil(V/32)]; may be null
  int64_t mask_stride;
  int32_t* token;       // [n], out
  float* logprob;       // [n], out
  int32_t* top_tokens;  // [n, T], out; may be null
  int64_t top_tokens_stride;
  float* top_logprobs;
  int64_t top_logprobs_stride;
  int num_top;  // T
};

struct Memory {
  SelectMemory<kThreads> select;
  unsigned long long masses[kBins];
  unsigned long long mass_of_warp[kThreads / kWarp];
  uint64_t best_of_warp[kThreads / kWarp];
  double score_of_warp[kThreads / kWarp];
  int id_of_warp[kThreads / kWarp];
  int top_count;
  float top_logits[kMaxTop];
  int top_ids[kMaxTop];
};

/// One row's operands.
struct Row {
  const float* logits;
  const int32_t* counts;  // null: no penalty
  const float* bias;
  const int32_t* mask;
  int vocab;
  ops::SampleRow params;
};

__device__ __forceinline__ float clean(float logit) {
  return logit == logit ? logit : -INFINITY;
}

/// Repetition, then frequency, then presence; `seen` is the token's word of SampleParams::counts.
__device__ __forceinline__ float penalize(const ops::SampleRow& row, uint32_t seen, float logit) {
  if (seen == 0) return logit;
  const uint32_t count = seen & 0x7FFFFFFFU;
  logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  const float frequency = row.frequency_penalty * static_cast<float>(count);
  const float presence = count > 0 ? row.presence_penalty : 0;
  return logit - frequency - presence;
}

__device__ __forceinline__ bool is_allowed(const Row& row, int id) {
  if (id == row.params.banned_token) return false;
  return row.mask == nullptr || ((static_cast<uint32_t>(row.mask[id / 32]) >> (id % 32)) & 1U) != 0;
}

/// The logit that item 13 looks at; -∞: the token cannot be drawn.
__device__ __forceinline__ float candidate(const Row& row, int id) {
  float logit = clean(row.logits[id]);
  if (row.counts != nullptr) {
    logit = penalize(row.params, static_cast<uint32_t>(row.counts[id]), logit);
  }
  // A bias of -∞ on a logit of ∞ makes a NaN.
  if (row.bias != nullptr) logit = clean(logit + row.bias[id]);
  return is_allowed(row, id) ? logit : -INFINITY;
}

/// The candidate's key; 0 if it cannot be drawn.
__device__ __forceinline__ uint32_t candidate_key(const Row& row, int id) {
  const float logit = candidate(row, id);
  return logit > -INFINITY ? order_key(logit) : 0;
}

/// The largest value over the block.
__device__ uint64_t block_largest(uint64_t value, Memory& memory) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = max(value, static_cast<uint64_t>(__shfl_xor_sync(
                           kAllLanes, static_cast<unsigned long long>(value), offset)));
  }
  if (lane_id() == 0) memory.best_of_warp[warp_id()] = value;
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) value = max(value, memory.best_of_warp[w]);
  __syncthreads();
  return value;
}

/// Key and inverted id in one number: the greatest is the first in the order.
__device__ __forceinline__ uint64_t rank_word(uint32_t key, int id) {
  return (uint64_t{key} << 32) | (0xFFFFFFFFU - static_cast<uint32_t>(id));
}
__device__ __forceinline__ int id_of(uint64_t word) {
  return static_cast<int>(0xFFFFFFFFU - static_cast<uint32_t>(word));
}
__device__ __forceinline__ uint32_t key_of(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

/// Tokens in front of the order's end at (key, id), that one included.
struct Kept {
  uint32_t key = 0;
  int last_id = INT_MAX;
};
__device__ __forceinline__ bool is_kept(const Kept& kept, uint32_t key, int id) {
  return key > kept.key || (key == kept.key && id <= kept.last_id);
}

/// The id of the `count`-th token (from 1) whose key is `key`, by ascending id.
template <typename Key>
__device__ int nth_equal(Key&& key_at, int vocab, uint32_t key, uint32_t count, Memory& memory) {
  __shared__ int found;
  const int stretch = (vocab + kThreads - 1) / kThreads * kWarp;
  const int begin = min(warp_id() * stretch, vocab);
  const int end = min(begin + stretch, vocab);
  uint32_t equal = 0;
  for (int base = begin; base < end; base += kWarp) {
    const int id = base + lane_id();
    equal += __popc(__ballot_sync(kAllLanes, id < end && key_at(id) == key));
  }
  if (threadIdx.x == 0) found = INT_MAX;
  if (lane_id() == 0) memory.select.of_warp[warp_id()] = equal;
  __syncthreads();
  uint32_t before = 0;
  for (int w = 0; w < warp_id(); ++w) before += memory.select.of_warp[w];
  if (before < count && before + equal >= count) {
    for (int base = begin; base < end; base += kWarp) {
      const int id = base + lane_id();
      const uint32_t all = __ballot_sync(kAllLanes, id < end && key_at(id) == key);
      const uint32_t rank = before + __popc(all & ((1U << lane_id()) - 1)) + 1;
      if (((all >> lane_id()) & 1U) != 0 && rank == count) found = id;
      before += __popc(all);
    }
  }
  __syncthreads();
  const int result = found;
  __syncthreads();
  return result;
}

/// The k first tokens of the order, or all.
template <typename Key>
__device__ Kept keep_first(Key&& key_at, int vocab, uint32_t k, Memory& memory) {
  const Cut cut = find_cut<kThreads>(key_at, vocab, k, memory.select);
  if (cut.ties == 0) return {};
  return {cut.key, nth_equal(key_at, vocab, cut.key, cut.ties, memory)};
}

/// Item 15's e: the probability relative to the first token's.
__device__ __forceinline__ float share_of(float logit, float temperature, float z_first) {
  const float z = logit / temperature;
  const float below = z == z_first ? 0 : z - z_first;  // ∞ - ∞ would be NaN
  return static_cast<float>(exp(static_cast<double>(below)));
}
/// Its mass as a whole number.
__device__ __forceinline__ unsigned long long mass_of(float logit, float temperature,
                                                      float z_first) {
  const float z = logit / temperature;
  if (z_first - z > static_cast<float>(kNoMass)) return 0;
  const float share = share_of(logit, temperature, z_first);
  return static_cast<unsigned long long>(static_cast<double>(share) * 0x1p32);
}

/// The nucleus among the kept tokens: those before which less than top_p of the mass lies.
__device__ Kept keep_nucleus(const Row& row, Kept kept, float z_first, Memory& memory) {
  const float temperature = row.params.temperature;
  const auto mass_at = [&](int id, uint32_t& key) -> unsigned long long {
    key = candidate_key(row, id);
    if (key == 0 || !is_kept(kept, key, id)) return 0;
    return mass_of(score_of_key(key), temperature, z_first);
  };
  unsigned long long sum[1] = {0};
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    uint32_t key = 0;
    sum[0] += mass_at(id, key);
  }
  block_sum<kThreads>(sum);
  const double limit = static_cast<double>(row.params.top_p) * static_cast<double>(sum[0]);
  uint32_t prefix = 0;
  unsigned long long before = 0;
#pragma unroll 1
  for (int digit = 0; digit < kDigits; ++digit) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) memory.masses[i] = 0;
    __syncthreads();
    for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
      uint32_t key = 0;
      const unsigned long long mass = mass_at(id, key);
      if (mass > 0 && has_prefix(key, prefix, digit)) {
        atomicAdd(&memory.masses[digit_of(key, digit)], mass);
      }
    }
    __syncthreads();
    const unsigned long long base = before;
    const auto found =
        find_bin<kThreads>(memory.masses, memory.mass_of_warp,
                           [base, limit](unsigned long long in_front, unsigned long long own) {
                             return static_cast<double>(base + in_front) < limit &&
                                    !(static_cast<double>(base + in_front + own) < limit);
                           });
    if (found.bin < 0) return kept;  // cannot be: top_p < 1
    prefix |= static_cast<uint32_t>(found.bin) << digit_shift(digit);
    before += found.before;
  }
  // All tokens of this key have the same mass: so many of them, by ascending id, begin below the
  // limit. Those beyond the last are none of `kept` (its end has this key or a later one).
  const unsigned long long mass = mass_of(score_of_key(prefix), temperature, z_first);
  const auto begins_below = [&](unsigned long long rank) {
    return static_cast<double>(before + rank * mass) < limit;
  };
  auto ties = static_cast<unsigned long long>((limit - static_cast<double>(before)) /
                                              static_cast<double>(mass));  // up to rounding
  while (ties > 0 && !begins_below(ties - 1)) --ties;
  while (begins_below(ties)) ++ties;
  const auto key_at = [&](int id) { return candidate_key(row, id); };
  const int last = nth_equal(key_at, row.vocab, prefix, static_cast<uint32_t>(ties), memory);
  return {prefix, prefix == kept.key ? min(last, kept.last_id) : last};
}

/// -log E of one word, as ops::gumbel_noise().
__device__ __forceinline__ double noise_of(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -log(-log1p(-v));
}

/// Item 14: argmax of logit/T - log E over the kept tokens.
__device__ int draw(const Row& row, const Kept& kept, float z_first, int first_id, int64_t position,
                    Memory& memory) {
  const float temperature = row.params.temperature;
  const auto place = static_cast<uint64_t>(position);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(row.params.seed),
                                       static_cast<uint32_t>(row.params.seed >> 32)};
  const auto words_of = [&](int group) {
    return philox4x32({static_cast<uint32_t>(group), static_cast<uint32_t>(place), 0U,
                       static_cast<uint32_t>(place >> 32)},
                      key);
  };
  // The first token is kept and near the top: what cannot beat it needs no logarithm.
  double best = static_cast<double>(z_first) +
                noise_of(words_of(first_id / 4)[static_cast<size_t>(first_id % 4)]);
  int best_id = first_id;
  const int groups = (row.vocab + 3) / 4;
  for (int group = static_cast<int>(threadIdx.x); group < groups; group += kThreads) {
    double z[4];
    bool can_win = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int id = 4 * group + i;
      z[i] = -INFINITY;
      const float logit = id < row.vocab ? candidate(row, id) : -INFINITY;
      if (!(logit > -INFINITY) || !is_kept(kept, order_key(logit), id)) continue;
      if (row.params.min_p > 0 && share_of(logit, temperature, z_first) < row.params.min_p) {
        continue;
      }
      z[i] = static_cast<double>(logit / temperature);
      can_win = can_win || z[i] + ops::kMaxGumbelNoise >= best;
    }
    if (!can_win) continue;
    const std::array<uint32_t, 4> words = words_of(group);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (z[i] == -INFINITY || z[i] + ops::kMaxGumbelNoise < best) continue;
      const double score = z[i] + noise_of(words[static_cast<size_t>(i)]);
      const int id = 4 * group + i;
      if (score > best || (score == best && id < best_id)) {
        best = score;
        best_id = id;
      }
    }
  }
  const auto merge = [&](double score, int id) {
    if (score > best || (score == best && id < best_id)) {
      best = score;
      best_id = id;
    }
  };
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const double score = __shfl_xor_sync(kAllLanes, best, offset);
    const int id = __shfl_xor_sync(kAllLanes, best_id, offset);
    merge(score, id);
  }
  if (lane_id() == 0) {
    memory.score_of_warp[warp_id()] = best;
    memory.id_of_warp[warp_id()] = best_id;
  }
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) merge(memory.score_of_warp[w], memory.id_of_warp[w]);
  __syncthreads();
  return best_id;
}

/// The lowest id that mask and ban leave; 0 if none is left.
__device__ int lowest_allowed(const Row& row, Memory& memory) {
  uint64_t best = 0;
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    if (is_allowed(row, id)) best = max(best, rank_word(1, id));
  }
  best = block_largest(best, memory);
  return best == 0 ? 0 : id_of(best);
}

__device__ int choose(const Row& row, int64_t position, Memory& memory) {
  uint64_t best = 0;
  unsigned long long count[1] = {0};
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    const uint32_t key = candidate_key(row, id);
    if (key == 0) continue;
    best = max(best, rank_word(key, id));
    ++count[0];
  }
  best = block_largest(best, memory);
  if (best == 0) return lowest_allowed(row, memory);
  const int first_id = id_of(best);
  if (row.params.temperature == 0) return first_id;
  block_sum<kThreads>(count);
  const float z_first = candidate(row, first_id) / row.params.temperature;
  Kept kept;
  if (row.params.top_k > 0 && static_cast<unsigned long long>(row.params.top_k) < count[0]) {
    const auto key_at = [&](int id) { return candidate_key(row, id); };
    kept = keep_first(key_at, row.vocab, static_cast<uint32_t>(row.params.top_k), memory);
  }
  if (row.params.top_p < 1) kept = keep_nucleus(row, kept, z_first, memory);
  return draw(row, kept, z_first, first_id, position, memory);
}

/// log p of the tokens of a row, from its unmodified logits.
struct LogSoftmax {
  float largest;
  double log_sum;

  __device__ double below_largest(float logit) const {
    // Equal ones first: ∞ - ∞ would be NaN.
    return logit == largest ? 0 : static_cast<double>(logit) - static_cast<double>(largest);
  }
  __device__ float operator()(float logit) const {
    return static_cast<float>(below_largest(clean(logit)) - log_sum);
  }
};

__device__ LogSoftmax log_softmax_of(const Row& row, Memory& memory) {
  uint64_t best = 0;
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    best = max(best, rank_word(order_key(clean(row.logits[id])), id));
  }
  LogSoftmax result{score_of_key(key_of(block_largest(best, memory))), 0};
  double sum[1] = {0};
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    sum[0] += exp(result.below_largest(clean(row.logits[id])));
  }
  block_sum<kThreads>(sum);
  result.log_sum = log(sum[0]);
  return result;
}

/// The T most likely tokens in order: a cut, then each one's rank among them.
__device__ void report_top(const SampleArgs& a, const Row& row, const LogSoftmax& log_softmax,
                           Memory& memory) {
  const auto key_at = [&](int id) { return order_key(clean(row.logits[id])); };
  Kept kept;
  if (a.num_top < row.vocab) {
    kept = keep_first(key_at, row.vocab, static_cast<uint32_t>(a.num_top), memory);
  }
  if (threadIdx.x == 0) memory.top_count = 0;
  __syncthreads();
  for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += kThreads) {
    const uint32_t key = key_at(id);
    if (!is_kept(kept, key, id)) continue;
    const int place = atomicAdd(&memory.top_count, 1);  // any order: ranks follow
    memory.top_logits[place] = score_of_key(key);
    memory.top_ids[place] = id;
  }
  __syncthreads();
  const int count = memory.top_count;
  int32_t* tokens = a.top_tokens + blockIdx.x * a.top_tokens_stride;
  float* logprobs = a.top_logprobs + blockIdx.x * a.top_logprobs_stride;
  for (int i = static_cast<int>(threadIdx.x); i < a.num_top; i += kThreads) {
    int rank = i;
    if (i < count) {
      const uint64_t word = rank_word(order_key(memory.top_logits[i]), memory.top_ids[i]);
      rank = 0;
      for (int j = 0; j < count; ++j) {
        rank += rank_word(order_key(memory.top_logits[j]), memory.top_ids[j]) > word;
      }
    }
    tokens[rank] = i < count ? memory.top_ids[i] : -1;
    logprobs[rank] = i < count ? log_softmax(memory.top_logits[i]) : -INFINITY;
  }
}

__global__ void __launch_bounds__(kThreads) sample_kernel(const SampleArgs a) {
  extern __shared__ uint4 raw_memory[];
  auto& memory = *reinterpret_cast<Memory*>(raw_memory);
  const int64_t i = blockIdx.x;
  const ops::SampleRow params = a.rows[i];
  const bool penalized = params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
                         params.presence_penalty != 0;
  const Row row{.logits = a.logits + i * a.logits_stride,
                .counts = penalized ? a.counts + a.slot[i] * a.counts_stride : nullptr,
                .bias = a.bias == nullptr ? nullptr : a.bias + i * a.bias_stride,
                .mask = a.mask == nullptr ? nullptr : a.mask + i * a.mask_stride,
                .vocab = a.vocab,
                .params = params};
  const int token =
      params.forced_token >= 0 ? params.forced_token : choose(row, a.position[i] + 1, memory);
  const LogSoftmax log_softmax = log_softmax_of(row, memory);
  if (threadIdx.x == 0) {
    a.token[i] = token;
    a.logprob[i] = log_softmax(row.logits[token]);
  }
  if (a.top_tokens != nullptr) report_top(a, row, log_softmax, memory);
}

}  // namespace

void sample(const ops::SampleParams& p, Context& context) {
  const int64_t rows = p.logits.dim(0);
  if (rows == 0) return;
  const bool top = !p.top_tokens.empty();
  const int64_t num_top = top ? p.top_tokens.dim(1) : 0;
  DEEPINFER_CHECK(num_top <= kMaxTop, "sample: {} log-probabilities per row, at most {}", num_top,
                  kMaxTop);
  SampleArgs args{};
  args.logits = p.logits.as<const float>();
  args.logits_stride = p.logits.stride(0);
  args.vocab = static_cast<int>(p.logits.dim(1));
  args.rows = context.staging->upload(p.rows, context.stream);
  args.slot = p.slot.as<const int32_t>();
  args.position = p.position.as<const int64_t>();
  if (!p.counts.empty()) {
    args.counts = p.counts.as<const int32_t>();
    args.counts_stride = p.counts.stride(0);
  }
  if (!p.bias.empty()) {
    args.bias = p.bias.as<const float>();
    args.bias_stride = p.bias.stride(0);
  }
  if (!p.mask.empty()) {
    args.mask = p.mask.as<const int32_t>();
    args.mask_stride = p.mask.stride(0);
  }
  args.token = p.token.as<int32_t>();
  args.logprob = p.logprob.as<float>();
  if (top && num_top > 0) {
    args.top_tokens = p.top_tokens.as<int32_t>();
    args.top_tokens_stride = p.top_tokens.stride(0);
    args.top_logprobs = p.top_logprobs.as<float>();
    args.top_logprobs_stride = p.top_logprobs.stride(0);
    args.num_top = static_cast<int>(num_top);
  }
  static_assert(sizeof(Memory) <= 48 * 1024, "more needs cudaFuncSetAttribute");
  sample_kernel<<<static_cast<unsigned>(rows), kThreads, sizeof(Memory), context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("sample");
}

}  // namespace deepinfer::cuda
