// The device's row and page look-ups, compiled for the host, against the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/device/rows.cuh"
#include "ops/addresses.h"
#include "tensor/tensor.h"

namespace deepinfer::cuda {
namespace {

constexpr uint32_t kSeed = 20261204;

/// A step of random spans in random batch order.
struct Step {
  explicit Step(std::mt19937& random) {
    const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
    const int64_t sizes[] = {1 + below(40), 1 + below(5), 1 + below(90)};
    num_rows = sizes[0] + sizes[1] + sizes[2];
    std::vector<int32_t> order(static_cast<size_t>(num_rows));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    for (Tensor* tensor : {&slot, &begin, &size, &span}) *tensor = Tensor(DType::kI32, {num_rows});
    for (Tensor* tensor : {&position, &first}) *tensor = Tensor(DType::kI64, {num_rows});
    role = Tensor(DType::kU8, {num_rows});
    std::ranges::copy(order, span.as<int32_t>());
    int32_t start = 0;
    for (int32_t s = 0; s < 3; ++s) {
      const int64_t base = below(1000);
      for (int64_t i = 0; i < sizes[s]; ++i) {
        const auto b = order[static_cast<size_t>(start + i)];
        slot.as<int32_t>()[b] = s;
        begin.as<int32_t>()[b] = start;
        size.as<int32_t>()[b] = static_cast<int32_t>(sizes[s]);
        first.as<int64_t>()[b] = base;
        position.as<int64_t>()[b] = base + i;
      }
      start += static_cast<int32_t>(sizes[s]);
    }
  }
  ops::RowBatch rows() const {
    ops::RowBatch rows;
    rows.position = position;
    rows.slot = slot;
    rows.role = role;
    rows.span_begin = begin;
    rows.span_size = size;
    rows.span_first = first;
    rows.span_rows = span;
    return rows;
  }

  int64_t num_rows = 0;
  Tensor slot, begin, size, span, position, first, role;
};

TEST(DeviceRows, AreFoundLikeTheReferences) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int run = 0; run < 30; ++run) {
    const Step step(random);
    const ops::RowBatch rows = step.rows();
    const RowsView view = view_of(rows);
    for (const int64_t running : {int64_t{0}, step.num_rows / 2, step.num_rows}) {
      for (int64_t b = 0; b < step.num_rows; ++b) {
        const int64_t position = view.position[b];
        for (int64_t t = position - 100; t < position + 100; t += 7) {
          ASSERT_EQ(row_at(view, b, t, running), ops::row_at(rows, b, t, running).value_or(-1));
        }
        for (const int64_t period : {16, 48}) {
          ASSERT_EQ(is_overwritten(view, b, period, running),
                    ops::is_overwritten(rows, b, period, running));
        }
      }
    }
  }
}

TEST(DeviceRows, EntriesAreFoundLikeTheReferences) {
  constexpr int64_t kPages = 6;
  const Tensor table(DType::kI32, {2, 3});
  std::ranges::copy(std::vector<int32_t>{4, 0, -1, 5, 2, 1}, table.as<int32_t>());
  for (const int32_t ratio : {1, 2}) {
    const int64_t per_page = 8 / ratio;
    const auto pages_of = [&](DType dtype, int64_t width) {
      return Tensor(dtype, {kPages, per_page, width});
    };
    const Tensor entry_codes = pages_of(DType::kE2M1x2, 16);
    const Tensor entry_scales = pages_of(DType::kE4M3, 2);
    const Tensor key_codes = pages_of(DType::kE2M1x2, 32);
    const Tensor key_scales = pages_of(DType::kE8M0, 2);
    const ops::CompressedPages pages{.entry_codes = entry_codes,
                                     .entry_scales = entry_scales,
                                     .key_codes = key_codes,
                                     .key_scales = key_scales,
                                     .ratio = ratio};
    ops::SlotState slots;
    slots.page_table = table;
    slots.page_tokens = 8;
    const PagesView view = view_of(pages, slots);
    for (int64_t slot = 0; slot < 2; ++slot) {
      for (int32_t entry = -1; entry < 4 * per_page; ++entry) {
        const auto want = ops::find_entry(pages, slots, slot, entry);
        const EntryPlace place = place_of(view, slot, entry);
        ASSERT_EQ(place.page >= 0, want.has_value()) << slot << " " << entry;
        if (!want) continue;
        EXPECT_EQ(row_of(view.entry_codes, place), want->codes);
        EXPECT_EQ(row_of(view.entry_scales, place), want->scales);
        EXPECT_EQ(row_of(view.key_codes, place), want->key_codes);
        EXPECT_EQ(row_of(view.key_scales, place), want->key_scales);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::cuda
