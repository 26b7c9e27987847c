#include "checkpoint/memory_plan.h"

#include <algorithm>

#include "tensor/cache_format.h"

namespace deepinfer::checkpoint {

MemoryPlan plan_memory(const ModelConfig& config) {
  MemoryPlan plan;
  for_each_tensor(config, [&plan](const ExpectedTensor& tensor) {
    const int64_t bytes = tensor.num_bytes();
    TensorTotal& kind = plan.kinds[static_cast<size_t>(tensor.kind)];
    ++kind.count;
    kind.bytes += bytes;
    ++plan.total.count;
    plan.total.bytes += bytes;
    (tensor.kind == TensorKind::kEngramTables ? plan.mapped_bytes : plan.resident_bytes) += bytes;
  });

  const int64_t entry = entry_bytes(config.head_dim) + index_key_bytes(config.index_head_dim);
  int64_t pairs = 0;
  for (const int32_t source : config.kv_source_layers) {
    plan.kv_bytes_per_token += static_cast<double>(entry) / config.ratio(source);
    pairs += config.ratio(source) > 1 ? 1 : 0;
  }
  plan.ring_rows = config.window + kRingSlack;
  plan.ring_row_bytes = window_key_bytes(config.head_dim) + size_of(DType::kI64);
  plan.ring_bytes = ring_bytes(config.num_layers, config.window, config.head_dim) +
                    pairs * open_pair_bytes(config.head_dim);
  plan.draft_ring_bytes = ring_bytes(config.num_draft_stages, config.window, config.head_dim);
  const int64_t encoder = config.kv_source_layers.empty() ? 0 : config.kv_source_layers.back() + 1;
  const int64_t unit_layers = std::max(encoder, config.num_layers - encoder);
  plan.snapshot_unit_bytes = snapshot_bytes(unit_layers, config.window, config.head_dim);
  return plan;
}

}  // namespace deepinfer::checkpoint
