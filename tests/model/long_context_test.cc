#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace deepinfer::model {
namespace {

/// Three rows of a request that already holds `committed` tokens, all of them in the same page.
std::vector<float> logits_at(int64_t committed) {
  constexpr int64_t kRows = 3;
  const auto checkpoint = checkpoint::Checkpoint::open(testing::data_path("nano-d"), {});
  ThreadPool pool(2);
  const auto backend = ops::make_reference_backend(ops::Numerics::kEngine, pool);
  Model model(*checkpoint, *backend, {}, {.max_rows = kRows, .max_logit_rows = kRows},
              bind_weights(*checkpoint, *backend));
  cache::CacheShape shape = Model::cache_shape(checkpoint->config());
  shape.num_slots = 1;
  shape.num_pages = 2;
  shape.max_slot_tokens = checkpoint->config().max_positions;
  cache::KvCache cache(*backend, shape);
  cache.reset_slot(0);
  const int64_t last_page = committed / cache::kPageTokens;
  for (int64_t page = 0; page <= last_page; ++page) cache.assign_page(0, page, page == last_page);
  *cache.slots().committed.as<int64_t>() = committed;

  std::vector<ops::PlanRow> rows;
  for (int32_t i = 0; i < kRows; ++i) {
    rows.push_back({.slot = 0, .offset = i, .token = 5 + i, .role = ops::RowRole::kPrefill});
  }
  const std::vector<int32_t> begin(kRows, 0);
  const std::vector<int32_t> size(kRows, kRows);
  std::vector<int32_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int64_t> rows_at_layer(static_cast<size_t>(checkpoint->config().num_layers),
                                           kRows);
  model.forward({.rows = rows,
                 .span_begin = begin,
                 .span_size = size,
                 .span_rows = order,
                 .rows_at_layer = rows_at_layer,
                 .num_logit_rows = kRows},
                cache);
  EXPECT_EQ(model.rows().position.as<const int64_t>()[kRows - 1], committed + kRows - 1);
  return testing::to_floats(model.logits());
}

TEST(LongContext, LastPositionsOfAMillionTokensGiveFiniteLogits) {
  // The last three positions of the released context length.
  for (const float logit : logits_at((int64_t{1} << 20) - 3)) ASSERT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace deepinfer::model
