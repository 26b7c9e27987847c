#include "bench/limits.h"

#include <cstdint>
#include <unordered_map>

#if DEEPINFER_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>

// All that is needed of <omp.h>, which clang-tidy does not find beside g++'s OpenMP.
extern "C" void omp_set_num_threads(int num_threads);
#endif

namespace deepinfer::bench {

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
