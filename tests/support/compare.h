#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

/// Comparisons of computed with golden values. Each says on failure how many elements are off and
/// shows the worst one. Rows are consecutive runs of `row_size` elements.
namespace deepinfer::testing {

/// The same bits (so -0 differs from +0).
::testing::AssertionResult bitwise_equal(std::span<const float> got, std::span<const float> want);

/// |got - want| <= `relative` times the largest magnitude of the row of `want`.
::testing::AssertionResult close_by_row(std::span<const float> got, std::span<const float> want,
                                        int64_t row_size, float relative);

/// Equal where `firm` is 1 (everywhere is firm if it is empty: bitwise), elsewhere at most one bf16
/// step apart.
::testing::AssertionResult within_one_bf16_step(std::span<const float> got,
                                                std::span<const float> want,
                                                std::span<const int64_t> firm);

/// Of bf16 results: at most `share` of the elements differ (one is always allowed), none by more
/// than `relative` times the largest magnitude of its row.
::testing::AssertionResult few_changed(std::span<const float> got, std::span<const float> want,
                                       int64_t row_size, double share, float relative);

}  // namespace deepinfer::testing
