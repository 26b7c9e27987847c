#include "tests/support/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "tensor/formats.h"

namespace deepinfer::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Counts the elements for which `excess(i)` > 0 and accepts up to `allowed` of them.
AssertionResult judge(std::span<const float> got, std::span<const float> want, size_t allowed,
                      const std::function<double(size_t)>& excess) {
  if (got.size() != want.size()) {
    return AssertionFailure() << got.size() << " elements instead of " << want.size();
  }
  size_t count = 0;
  size_t worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = excess(i);
    if (!(e > 0)) continue;
    ++count;
    if (e > worst_excess) {
      worst_excess = e;
      worst = i;
    }
  }
  if (count <= allowed) return AssertionSuccess();
  return AssertionFailure() << count << " of " << got.size() << " elements are off (" << allowed
                            << " allowed); element " << worst << " is " << got[worst]
                            << " instead of " << want[worst];
}

std::vector<float> row_maxima(std::span<const float> values, int64_t row_size) {
  std::vector<float> maxima;
  const auto size = static_cast<size_t>(row_size);
  for (size_t begin = 0; begin < values.size(); begin += size) {
    float largest = 0;
    for (const float v : values.subspan(begin, size)) largest = std::max(largest, std::fabs(v));
    maxima.push_back(largest);
  }
  return maxima;
}

/// |a - b|, where equal values (infinities too) are 0 apart and NaN differs from all.
double distance(float a, float b) {
  if (a == b) return 0;
  const double d = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(d) ? INFINITY : d;
}

/// bf16 values as consecutive integers; both zeros are 0.
int32_t bf16_index(float value) {
  const int32_t bits = to_bfloat16(value).bits;
  return bits >= 0x8000 ? 0x8000 - bits : bits;
}

}  // namespace

AssertionResult bitwise_equal(std::span<const float> got, std::span<const float> want) {
  return judge(got, want, 0, [&](size_t i) {
    const bool same = std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]);
    return same ? 0 : std::max(distance(got[i], want[i]), 1e-300);
  });
}

AssertionResult close_by_row(std::span<const float> got, std::span<const float> want,
                             int64_t row_size, float relative) {
  const std::vector<float> maxima = row_maxima(want, row_size);
  return judge(got, want, 0, [&](size_t i) {
    return distance(got[i], want[i]) - relative * maxima[i / static_cast<size_t>(row_size)];
  });
}

AssertionResult within_one_bf16_step(std::span<const float> got, std::span<const float> want,
                                     std::span<const int64_t> firm) {
  if (firm.empty()) return bitwise_equal(got, want);
  return judge(got, want, 0, [&](size_t i) {
    const int32_t steps = std::abs(bf16_index(got[i]) - bf16_index(want[i]));
    const bool is_bf16 = distance(round_to_bfloat16(got[i]), got[i]) == 0;
    return is_bf16 && steps <= (firm[i] != 0 ? 0 : 1) ? 0.0 : 1.0 + steps;
  });
}

AssertionResult few_changed(std::span<const float> got, std::span<const float> want,
                            int64_t row_size, double share, float relative) {
  if (const AssertionResult close = close_by_row(got, want, row_size, relative); !close) {
    return close;
  }
  const auto allowed = static_cast<size_t>(share * static_cast<double>(want.size()));
  return judge(got, want, std::max(allowed, size_t{1}),
               [&](size_t i) { return distance(got[i], want[i]); });
}

}  // namespace deepinfer::testing
