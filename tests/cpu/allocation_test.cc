#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "cpu/backend.h"
#include "model/forward.h"
#include "tests/support/golden.h"

// Steady decode allocates nothing: every operator new of this program is counted.
namespace {

std::atomic<int64_t> allocations = 0;  // relaxed: read when no other thread runs

void* counted(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment > alignof(std::max_align_t)
                ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                : std::malloc(size > 0 ? size : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads): all forms that the program uses
void* operator new(size_t size) {
  return counted(size, 1);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<size_t>(alignment));
}
// Sanitizers have their own forms of the others, which would meet our delete.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return counted(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t size) {
  return counted(size, 1);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
// NOLINTEND(misc-new-delete-overloads)

namespace deepinfer::cpu {
namespace {

/// One decode row of one request, whatever its position.
class Decoder {
 public:
  explicit Decoder(int threads)
      : checkpoint_(checkpoint::Checkpoint::open(testing::data_path("nano-d"), {})),
        pool_(threads),
        backend_(make_cpu_backend(pool_)),
        model_(*checkpoint_, *backend_, {}, {.max_rows = 1, .max_logit_rows = 1},
               model::bind_weights(*checkpoint_, *backend_)),
        cache_(*backend_, shape()),
        rows_at_layer_(static_cast<size_t>(checkpoint_->config().num_layers), 1) {
    cache_.reset_slot(0);
    cache_.assign_page(0, 0, 0);
  }

  /// Runs the step of position `committed` and returns what it allocated.
  int64_t step(int64_t committed) {
    *cache_.slots().committed.as<int64_t>() = committed;
    *cache_.slots().last_token.as<int32_t>() = static_cast<int32_t>(committed % 100);
    const ops::PlanRow row{.slot = 0, .offset = 0, .token = -1, .role = ops::RowRole::kDecode};
    const int32_t zero = 0;
    const int32_t one = 1;
    const int64_t before = allocations.load(std::memory_order_relaxed);
    model_.forward({.rows = std::span(&row, 1),
                    .span_begin = std::span(&zero, 1),
                    .span_size = std::span(&one, 1),
                    .span_rows = std::span(&zero, 1),
                    .rows_at_layer = rows_at_layer_,
                    .num_logit_rows = 1},
                   cache_);
    return allocations.load(std::memory_order_relaxed) - before;
  }

 private:
  cache::CacheShape shape() const {
    cache::CacheShape shape = model::Model::cache_shape(checkpoint_->config());
    shape.num_slots = 1;
    shape.num_pages = 1;
    shape.max_slot_tokens = cache::kPageTokens;
    return shape;
  }

  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  ThreadPool pool_;
  std::unique_ptr<ops::Backend> backend_;
  model::Model model_;
  cache::KvCache cache_;
  std::vector<int64_t> rows_at_layer_;
};

TEST(SteadyDecode, AllocatesNothing) {
  for (const int threads : {1, 3}) {
    Decoder decoder(threads);
    // Scratch memory grows with the first steps; a thread's own when it first meets the largest
    // task, which may take some rounds. What allocates in every step never has a round without.
    int64_t allocated = -1;
    for (int round = 0; round < 20 && allocated != 0; ++round) {
      allocated = 0;
      for (int64_t position = 0; position < cache::kPageTokens; ++position) {
        allocated += decoder.step(position);
      }
      if (round == 0) {
        EXPECT_GT(allocated, 0);  // the counter counts
      }
    }
    EXPECT_EQ(allocated, 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace deepinfer::cpu
