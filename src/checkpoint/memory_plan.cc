#include "checkpoint/memory_plan.h"

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

  // An entry is head_dim FP4 values with a scale byte per 16 and an indexer key with a scale byte
  // per 32.
  const double entry_bytes = static_cast<double>(config.head_dim) * (1.0 / 2 + 1.0 / 16) +
                             static_cast<double>(config.index_head_dim) * (1.0 / 2 + 1.0 / 32);
  for (const int32_t source : config.kv_source_layers) {
    plan.kv_bytes_per_token += entry_bytes / config.ratio(source);
  }
  constexpr int64_t kRingSlack = 16;  // rows of two verifications in flight
  plan.ring_rows = config.window + kRingSlack;
  plan.ring_row_bytes = config.head_dim + config.head_dim / 32;
  plan.ring_bytes = plan.ring_rows * plan.ring_row_bytes * config.num_layers;
  plan.draft_ring_bytes = plan.ring_rows * plan.ring_row_bytes * config.num_draft_stages;
  return plan;
}

}  // namespace deepinfer::checkpoint
