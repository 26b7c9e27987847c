// Attention and index scores of rows at the released sizes, beside this machine's limits: the
// kernels alone, every row with keys of its own, so that nothing is shared between rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/limits.h"
#include "cpu/denormals.h"
#include "cpu/dispatch.h"
#include "cpu/machine_limits.h"
#include "tensor/tensor.h"

namespace deepinfer {
namespace {

constexpr int kRepeats = 9;

/// Random bytes that are finite codes in every format: no exponent is all ones.
std::vector<uint8_t> random_codes(std::mt19937_64& random, int64_t count) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random() & 0xB7);
  return codes;
}

std::vector<BFloat16> random_bf16(std::mt19937_64& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<BFloat16> values(static_cast<size_t>(count));
  for (BFloat16& v : values) v = to_bfloat16(normal(random));
  return values;
}

/// Prints what one row costs and how near that is to the larger of its bounds.
void report(std::string_view name, double seconds, double bytes, double operations,
            const cpu::MachineLimits& limits) {
  const double bound =
      std::max(bytes / limits.read_bytes_per_second, operations / limits.operations_per_second);
  fmt::print("{:<44}{:>10.1f} us{:>10.1f} KB{:>10.1f} Mop{:>9.2f} GB/s{:>9.1f} Gop/s{:>8.1f}%\n",
             name, seconds * 1e6, bytes / 1e3, operations / 1e6, bytes / seconds / 1e9,
             operations / seconds / 1e9, 100 * bound / seconds);
}

/// Median time per row of `rows` rows on all threads.
template <typename Body>
double seconds_per_row(ThreadPool& pool, int64_t rows, const Body& body) {
  bench::Samples times;
  for (int i = 0; i < kRepeats; ++i) {
    times.add(bench::seconds([&] {
      pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
        const cpu::FlushDenormals flush;
        for (int64_t row = begin; row < end; ++row) body(row);
      });
    }));
  }
  return times.median() / static_cast<double>(rows);
}

void attention(ThreadPool& pool, const cpu::MachineLimits& limits, int64_t heads, int64_t window,
               int64_t entries) {
  constexpr int64_t kHeadDim = 512;
  constexpr int64_t kPairs = 32;
  const int64_t rows = int64_t{8} * pool.num_threads();
  const int64_t num_keys = window + entries;
  const int64_t row_codes = window * kHeadDim + entries * kHeadDim / 2;
  const int64_t row_scales = window * kHeadDim / 32 + entries * kHeadDim / 16;
  std::mt19937_64 random(1);
  const std::vector<uint8_t> codes = random_codes(random, rows * row_codes);
  const std::vector<uint8_t> entry_scales(static_cast<size_t>(rows * row_scales), 0x38);
  const std::vector<uint8_t> window_scales(static_cast<size_t>(kHeadDim / 32), 120);
  const std::vector<BFloat16> q = random_bf16(random, rows * heads * kHeadDim);
  std::vector<BFloat16> out(q.size());
  const std::vector<float> sink(static_cast<size_t>(heads), 0.5F);
  const std::vector<float> cosine(kPairs, 0.6F);
  const std::vector<float> sine(kPairs, 0.8F);
  std::vector<cpu::StoredKey> keys(static_cast<size_t>(rows * num_keys));
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* code = codes.data() + row * row_codes;
    const uint8_t* scale = entry_scales.data() + row * row_scales;
    for (int64_t j = 0; j < num_keys; ++j) {
      const bool is_entry = j >= window;
      keys[static_cast<size_t>(row * num_keys + j)] = {
          code, is_entry ? scale : window_scales.data(), is_entry};
      code += is_entry ? kHeadDim / 2 : kHeadDim;
      scale += is_entry ? kHeadDim / 16 : 0;
    }
  }
  std::vector<Tensor> scratch;
  scratch.reserve(static_cast<size_t>(pool.num_threads()));
  for (int i = 0; i < pool.num_threads(); ++i) {
    scratch.emplace_back(DType::kF32, Shape{cpu::attention_scratch(heads, kHeadDim)});
  }
  const cpu::RowKernels& kernels = cpu::choose_kernels().rows;
  const double time = seconds_per_row(pool, rows, [&](int64_t row) {
    const int64_t offset = row * heads * kHeadDim;
    kernels.attend(
        {.q = q.data() + offset,
         .keys = keys.data() + row * num_keys,
         .num_keys = num_keys,
         .sink = sink.data(),
         .heads = heads,
         .head_dim = kHeadDim,
         .cosine = cosine.data(),
         .sine = sine.data(),
         .num_pairs = kPairs,
         .out = out.data() + offset,
         .trace = nullptr,
         .scratch = scratch[static_cast<size_t>(ThreadPool::thread_index())].as<float>()});
  });
  report(fmt::format("attention, {} heads, {} + {} keys", heads, window, entries), time,
         static_cast<double>(row_codes + row_scales + 4 * heads * kHeadDim),
         4.0 * static_cast<double>(heads * kHeadDim * num_keys), limits);
}

/// `queries` rows of one slot score the same keys.
void index_scores(ThreadPool& pool, const cpu::MachineLimits& limits, int64_t heads,
                  int64_t queries) {
  constexpr int64_t kDim = 128;
  const cpu::IndexShape shape{.heads = heads, .dim = kDim};
  const int64_t groups = int64_t{4096} * pool.num_threads();  // of sixteen keys
  std::mt19937_64 random(2);
  const std::vector<uint8_t> codes = random_codes(random, groups * 16 * kDim / 2);
  const std::vector<uint8_t> scales(static_cast<size_t>(groups * 16 * kDim / 32), 126);
  const cpu::RowKernels& kernels = cpu::choose_kernels().rows;

  std::vector<int32_t> words(static_cast<size_t>(heads * kDim / 4));
  std::vector<int32_t> offset(static_cast<size_t>(heads * kDim / 32));
  std::vector<float> scale(offset.size());
  std::vector<float> weights(static_cast<size_t>(heads), 0.5F);
  const cpu::IndexQuery query{words.data(), offset.data(), scale.data(), weights.data()};
  kernels.pack_query(codes.data(), scales.data(), shape, query);
  std::vector<float> scores(static_cast<size_t>(groups * 16));
  const double time = seconds_per_row(pool, groups, [&](int64_t group) {
    const uint8_t* key_codes[16];
    const uint8_t* key_scales[16];
    for (int64_t k = 0; k < 16; ++k) {
      key_codes[k] = codes.data() + (group * 16 + k) * kDim / 2;
      key_scales[k] = scales.data() + (group * 16 + k) * kDim / 32;
    }
    alignas(64) int32_t key_words[kDim / 4 * 16];
    alignas(64) float key_scale[kDim / 32 * 16];
    const cpu::IndexKeys keys{key_words, key_scale};
    kernels.pack_keys(key_codes, key_scales, 16, kDim, keys);
    for (int64_t i = 0; i < queries; ++i) {
      kernels.score_keys(query, keys, shape, scores.data() + group * 16);
    }
  });
  constexpr int64_t kKeys = 16;
  constexpr int64_t kKeyBytes = kKeys * (kDim / 2 + kDim / 32);
  report(fmt::format("index scores, {} heads, {} row(s), 16 keys", heads, queries), time,
         static_cast<double>(kKeyBytes), 2.0 * static_cast<double>(kKeys * queries * heads * kDim),
         limits);
}

void run() {
  ThreadPool pool(0, ThreadPool::Pinning::kCores);
  pool.pin_caller();
  const cpu::MachineLimits limits = cpu::measure_limits(pool);
  fmt::print("level {}, {} threads; limits: {:.2f} GB/s, {:.1f} Gop/s (fp32 multiply-adds)\n",
             cpu::choose_kernels().level, pool.num_threads(), limits.read_bytes_per_second / 1e9,
             limits.operations_per_second / 1e9);
  attention(pool, limits, 64, 128, 512);
  attention(pool, limits, 64, 128, 0);
  attention(pool, limits, 4, 128, 64);
  index_scores(pool, limits, 32, 1);
  index_scores(pool, limits, 32, 16);
  index_scores(pool, limits, 4, 1);
}

}  // namespace
}  // namespace deepinfer

int main() {
  deepinfer::run();
}
