// The index over contexts of many lengths: every row is of a slot of its own, with keys of its own.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/cuda/harness.h"
#include "bench/cuda/step.h"
#include "cuda/ops/ops.h"
#include "tensor/cache_format.h"

namespace deepinfer::bench {
namespace {

constexpr std::array<int64_t, 4> kEntryCounts = {4096, 32768, 131072, 1048576};
constexpr std::array<int64_t, 4> kIndexRows = {1, 16, 64, 256};
constexpr int64_t kBlockPoolRows = 1024;

/// What candidate blocks have to do with a measurement.
enum class Blocks {
  kNone,
  kPublished,   // the candidate source
  kRestricted,  // a later index source
};

/// Candidate blocks of rows that see `entries`, on the host and on the device.
struct BlockPool {
  BlockPool(Harness& h, int64_t entries)
      : blocks_host(DType::kI32, {kBlockPoolRows, h.config().candidate_topk_blocks}) {
    const int64_t num_blocks = entries / h.config().candidate_block_size;
    const int64_t kept = std::min(num_blocks, h.config().candidate_topk_blocks);
    for (int64_t b = 0; b < kBlockPoolRows; ++b) {
      draw_ascending({blocks_host.view().row<int32_t>(b), static_cast<size_t>(kept)}, num_blocks,
                     static_cast<uint32_t>(b));
    }
    std::fill_n(count_host.as<int32_t>(), kBlockPoolRows, static_cast<int32_t>(kept));
    blocks = h.upload(blocks_host);
    count = h.upload(count_host);
  }

  Tensor blocks_host;
  Tensor count_host{DType::kI32, {kBlockPoolRows}};
  TensorView blocks, count;
};

/// Slots with `entries` index keys each, and the operands of the rows.
struct IndexOperands {
  IndexOperands(Harness& h, int64_t entries, int64_t num_slots)
      : caches(h, {.slots = num_slots, .committed = entries - 1, .has_keys = true}),
        candidates(h, entries) {
    const checkpoint::ModelConfig& c = h.config();
    wq_b = h.random_weights(DType::kE4M3, c.index_num_heads * c.index_head_dim, c.q_lora_rank);
    proj = h.random_weights(DType::kBF16, c.index_num_heads, c.hidden_size);
    x = h.random(DType::kBF16, {kPoolRows, c.hidden_size});
    r = h.random(DType::kBF16, {kPoolRows, c.q_lora_rank});
    rope = h.rope();
    selected = h.zeros(DType::kI32, {kBlockPoolRows, c.index_topk});
    num_selected = h.zeros(DType::kI32, {kBlockPoolRows});
    published = h.zeros(DType::kI32, {kBlockPoolRows, c.candidate_topk_blocks});
    num_published = h.zeros(DType::kI32, {kBlockPoolRows});
  }

  Caches caches;
  BlockPool candidates;
  std::vector<QuantView> wq_b, proj;
  TensorView x, r, selected, num_selected, published, num_published;
  ops::Rope rope;
};

/// Bytes: weights, rows, and the keys of the entries that compete, codes and scales, once per slot.
/// Operations: the products of the query and heads × channels per entry.
void index_select(Harness& h, const std::string& name, const IndexOperands& o, int64_t rows,
                  int64_t entries, Blocks blocks) {
  const checkpoint::ModelConfig& c = h.config();
  const MemoryScope scope(h);
  const auto key_bytes = static_cast<double>(entries * index_key_bytes(c.index_head_dim));
  const auto steps = step_sets(h, rows, o.caches.slots.page_table.dim(0), entries - 1, key_bytes);
  const auto make = [&](int64_t set) {
    ops::IndexSelectParams p;
    p.x = in_turn(o.x, set, rows);
    p.r = in_turn(o.r, set, rows);
    p.rows = in_turn(steps, set).device();
    p.slots = o.caches.slots;
    p.wq_b = in_turn(o.wq_b, set);
    p.weights_proj = in_turn(o.proj, set).weight;
    p.rope = o.rope;
    p.pages = o.caches.pages;
    if (blocks == Blocks::kRestricted) {
      p.restrict_to = {.blocks = in_turn(o.candidates.blocks, set, rows),
                       .count = in_turn(o.candidates.count, set, rows),
                       .block_size = c.candidate_block_size};
    } else if (blocks == Blocks::kPublished) {
      p.publish = {.blocks = in_turn(o.published, set, rows),
                   .count = in_turn(o.num_published, set, rows),
                   .block_size = c.candidate_block_size};
    }
    p.selected = in_turn(o.selected, set, rows);
    p.num_selected = in_turn(o.num_selected, set, rows);
    return p;
  };
  ops::IndexSelectParams on_host = make(0);
  on_host.rows = steps.front().host();
  on_host.restrict_to.count = o.candidates.count_host;
  h.measure<ops::IndexSelectParams>(name, rows, make, cuda::index_select,
                                    {.cost = ops::cost_of(on_host)});
}

}  // namespace

void measure_index_select(Harness& h) {
  const checkpoint::ModelConfig& c = h.config();
  const int64_t candidates = c.candidate_topk_blocks * c.candidate_block_size;
  for (const int64_t entries : kEntryCounts) {
    const std::string plain = fmt::format("index_select {}K", entries / 1024);
    const std::string published = plain + ", publishes blocks";
    const std::string restricted = plain + ", in blocks";
    if (!h.wants(plain) && !h.wants(published) && !h.wants(restricted)) continue;
    const MemoryScope scope(h);
    int64_t num_slots = 0;
    for (const int64_t rows : kIndexRows) {
      const auto bytes = static_cast<double>(rows * entries * index_key_bytes(c.index_head_dim));
      num_slots = std::max(num_slots, rows * num_sets(bytes));
    }
    const IndexOperands operands(h, entries, num_slots);
    const auto measure = [&](const std::string& name, Blocks blocks) {
      if (!h.wants(name)) return;
      for (const int64_t rows : kIndexRows) index_select(h, name, operands, rows, entries, blocks);
    };
    measure(plain, Blocks::kNone);
    measure(published, Blocks::kPublished);
    if (entries > candidates) measure(restricted, Blocks::kRestricted);  // else all are candidates
  }
}

}  // namespace deepinfer::bench
