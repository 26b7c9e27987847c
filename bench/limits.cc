#include "bench/limits.h"

#include <atomic>
#include <cstdint>
#include <unordered_map>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if DEEPINFER_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>

// All that is needed of <omp.h>, which clang-tidy does not find beside g++'s OpenMP.
extern "C" void omp_set_num_threads(int num_threads);
#endif

namespace deepinfer::bench {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;
std::atomic<uint64_t> sink;  // keeps results alive

/// The exclusive or of a piece, four lines at a time.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t read_512(const std::byte* p) {
  __m512i lanes[4] = {};
  for (int64_t i = 0; i < kPiece; i += 256) {
#pragma GCC unroll 4
    for (int64_t l = 0; l < 4; ++l) {
      lanes[l] = _mm512_xor_si512(lanes[l], _mm512_loadu_si512(p + i + 64 * l));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(lanes[0], lanes[1]), _mm512_xor_si512(lanes[2], lanes[3]));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(all)));
}
#endif

uint64_t read_plain(const std::byte* p) {
  const auto* words = reinterpret_cast<const uint64_t*>(p);
  uint64_t lanes[32] = {};
  for (int64_t i = 0; i < kPiece / 8; i += 32) {
    for (int64_t l = 0; l < 32; ++l) lanes[l] ^= words[i + l];
  }
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

uint64_t read_piece(const std::byte* p) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_512(p);
#endif
  return read_plain(p);
}

#if defined(__x86_64__)
/// Twelve independent sums hide the latency of two multiply-adds per cycle. Returns operations.
__attribute__((target("avx512f"))) double multiply_add_512(int64_t count) {
  __m512 sums[12];
  for (auto& s : sums) s = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(0.5F);
  for (int64_t n = 0; n < count; ++n) {
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm512_fmadd_ps(s, x, x);
    asm volatile("" : "+v"(x));
  }
  float total = 0;
  for (const auto& s : sums) total += _mm512_cvtss_f32(s);
  sink ^= static_cast<uint64_t>(total);
  return static_cast<double>(count) * 12 * 16 * 2;
}

__attribute__((target("avx2,fma"))) double multiply_add_256(int64_t count) {
  __m256 sums[12];
  for (auto& s : sums) s = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(0.5F);
  for (int64_t n = 0; n < count; ++n) {
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm256_fmadd_ps(s, x, x);
    asm volatile("" : "+x"(x));
  }
  float total = 0;
  for (const auto& s : sums) total += _mm256_cvtss_f32(s);
  sink ^= static_cast<uint64_t>(total);
  return static_cast<double>(count) * 12 * 8 * 2;
}
#endif

}  // namespace

double seconds_to_read(ThreadPool& pool, const TensorView& data) {
  const auto* bytes = static_cast<const std::byte*>(data.data());
  const int64_t pieces = data.num_bytes() / kPiece;
  return seconds([&] {
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sink ^= read_piece(bytes + i * kPiece);
    });
  });
}

double peak_gflops([[maybe_unused]] ThreadPool& pool) {
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return 0;
  Samples rates;
  for (int i = 0; i < 5; ++i) {
    std::atomic<double> operations = 0;
    const double time = seconds([&] {
      pool.parallel_for(int64_t{pool.num_threads()} * 4, 1, [&](int64_t, int64_t) {
        constexpr int64_t kCount = 2'000'000;
        operations += wide ? multiply_add_512(kCount) : multiply_add_256(kCount);
      });
    });
    rates.add(operations / time / 1e9);
  }
  return rates.median();
#else
  return 0;
#endif
}

#if DEEPINFER_ONEDNN

struct BaselineProduct::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::inner_product_forward product;
  std::unordered_map<int, dnnl::memory> arguments;
};

BaselineProduct::BaselineProduct(int64_t rows, int64_t out, int64_t k, int threads)
    : state_(std::make_unique<State>()) {
  omp_set_num_threads(threads);
  using Memory = dnnl::memory;
  const auto any = [](const Memory::dims& dims) {
    return Memory::desc(dims, Memory::data_type::bf16, Memory::format_tag::any);
  };
  const dnnl::inner_product_forward::primitive_desc chosen(
      {dnnl::prop_kind::forward_inference, any({rows, k}), any({out, k}), any({rows, out})},
      state_->engine);
  state_->product = dnnl::inner_product_forward(chosen);
  state_->arguments = {{DNNL_ARG_SRC, Memory(chosen.src_desc(), state_->engine)},
                       {DNNL_ARG_WEIGHTS, Memory(chosen.weights_desc(), state_->engine)},
                       {DNNL_ARG_DST, Memory(chosen.dst_desc(), state_->engine)}};
  for (auto& [name, memory] : state_->arguments) {
    auto* words = static_cast<uint16_t*>(memory.get_data_handle());
    std::fill_n(words, memory.get_desc().get_size() / 2, uint16_t{0x3F80});
  }
}
BaselineProduct::~BaselineProduct() = default;

void BaselineProduct::run() {
  state_->product.execute(state_->stream, state_->arguments);
  state_->stream.wait();
}

#else

struct BaselineProduct::State {};
BaselineProduct::BaselineProduct(int64_t, int64_t, int64_t, int) {}
BaselineProduct::~BaselineProduct() = default;
void BaselineProduct::run() {}

#endif

}  // namespace deepinfer::bench
