#include "engine/device_plan.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/memory_plan.h"

namespace deepinfer::engine {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
/// What goes with every allocation: alignment, tables of expert addresses, small constants.
constexpr int64_t kSlack = 64 * kMiB;

/// Bytes of a row of `columns` as the product kernels read it.
int64_t product_row(int64_t columns) {
  return (columns + 255) / 256 * 256 * 2;
}

/// Scratch memory of the largest operation: the rows between its products. An operation that tiles
/// its rows (the indexer's scores) takes what is left, so some is added for it.
int64_t workspace_bytes(const checkpoint::ModelConfig& c, const model::StepLimits& limits) {
  const int64_t d = product_row(c.hidden_size);
  const int64_t heads = c.num_heads * c.head_dim;
  const int64_t latent = c.o_groups * c.o_lora_rank;
  const int64_t qkv = d + 2 * product_row(c.q_lora_rank) + 2 * c.head_dim;
  const int64_t output = 2 * heads + 512 * c.o_groups + 2 * product_row(latent);
  const int64_t experts = d + c.experts_per_token * (product_row(c.moe_intermediate_size) + 16);
  const int64_t route = d + 4 * c.num_experts;
  const int64_t compress = d + 8 * c.head_dim + 2 * product_row(c.head_dim);
  const int64_t indexer = d + 4 * product_row(c.index_num_heads * c.index_head_dim);
  const int64_t ngrams = (c.engram_max_ngram - 1) * c.engram_num_heads * c.engram_head_dim;
  const int64_t engram =
      c.engram_layers.empty() ? 0 : 2 * product_row(ngrams) + 2 * (c.hc_mult + 1) * c.hidden_size;
  const int64_t row = std::max({qkv, output, experts, route, compress, indexer, engram});
  // The sums of a product's segments, at most 512 rows of 2048 outputs.
  const int64_t segments = (std::max(c.hidden_size, heads) + 511) / 512;
  const int64_t partial = std::min<int64_t>((limits.max_rows + 63) / 64 * 64, 512) * 2048 * 4 *
                          std::min<int64_t>(segments, 32);
  const int64_t logits = limits.max_logit_rows * 2 * d;
  return limits.max_rows * row + partial + logits + 192 * kMiB;
}

int64_t activation_bytes(const checkpoint::ModelConfig& c, const model::StepLimits& limits) {
  const auto targets = static_cast<int64_t>(c.dspark_target_layers.size());
  const int64_t row = 2 * c.hidden_size * (c.hc_mult + 4 + c.experts_per_token + targets) +
                      2 * c.q_lora_rank + 4 * c.num_heads * c.head_dim + 2 * c.head_dim +
                      int64_t{4} * (c.index_topk + c.candidate_topk_blocks) + 256 +
                      8 * c.experts_per_token;
  return limits.max_rows * row + limits.max_logit_rows * c.vocab_size * 4 * 2;
}

}  // namespace

DevicePlan plan_device(const checkpoint::ModelConfig& config, const model::StepLimits& limits,
                       int64_t cache_bytes) {
  return {.weights = checkpoint::plan_memory(config).resident_bytes + kSlack,
          .caches = cache_bytes,
          .activations = activation_bytes(config, limits),
          .workspace = workspace_bytes(config, limits)};
}

cuda::BackendOptions backend_options(const EngineOptions& options, const DevicePlan& plan) {
  const cuda::DeviceList list = cuda::list_devices();
  const auto index = static_cast<size_t>(options.device);
  // A device that is not there or cannot be used is named by the backend.
  if (list.problem.empty() && index < list.devices.size() && list.devices[index].problem.empty() &&
      plan.total() > list.devices[index].free_bytes) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
    fail(ErrorCode::kResourceExhausted,
         "CUDA device {} has {:.1f} GiB free, but weights ({:.1f}), caches ({:.1f}), activations "
         "({:.1f}) and workspace ({:.1f}) need {:.1f}: lower kv_tokens or max_batch for the "
         "caches, prefill_chunk for the rest",
         options.device, gib(list.devices[index].free_bytes), gib(plan.weights), gib(plan.caches),
         gib(plan.activations), gib(plan.workspace), gib(plan.total()));
  }
  return {.device = options.device,
          .workspace_bytes = plan.workspace,
          .reserve_bytes = plan.weights + plan.caches + plan.activations,
          .tables_in_file = options.engram == "file"};
}

}  // namespace deepinfer::engine
