#include "ops/engram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/reference/reference.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace deepinfer::ops {
namespace {

using testing::Golden;
using testing::Random;
using testing::to_tensor;

/// Hash parameters that own their tensors; offsets are the running sum of the primes.
struct Hash {
  Hash(const std::vector<int32_t>& map, int32_t pad_id, const std::vector<int64_t>& factors,
       const std::vector<int64_t>& sizes)
      : token_map(to_tensor(map, {static_cast<int64_t>(map.size())})),
        multipliers(to_tensor(factors, {static_cast<int64_t>(factors.size())})),
        primes(to_tensor(sizes, {static_cast<int64_t>(sizes.size())})),
        offsets(DType::kI64, {static_cast<int64_t>(sizes.size())}) {
    std::exclusive_scan(sizes.begin(), sizes.end(), offsets.as<int64_t>(), int64_t{0});
    params.token_map = token_map;
    params.pad = pad_id;
    params.multipliers = multipliers;
    params.primes = primes;
    params.offsets = offsets;
  }
  std::vector<int64_t> rows(std::span<const int32_t> context) const {
    std::vector<int64_t> result(static_cast<size_t>(primes.shape()[0]));
    engram_rows(params, context, result);
    return result;
  }

  Tensor token_map, multipliers, primes, offsets;
  EngramParams params;
};

/// Tokens at p, p-1, …; -1 before the start.
std::vector<int32_t> look_back(const std::vector<int64_t>& ids, size_t p, size_t n) {
  std::vector<int32_t> context(n, -1);
  for (size_t i = 0; i < n && i <= p; ++i) context[i] = static_cast<int32_t>(ids[p - i]);
  return context;
}

/// Part `index` of `parts` equal parts.
std::vector<int64_t> part(const std::vector<int64_t>& all, size_t index, size_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / parts);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(index) * size;
  return {first, first + size};
}

void expect_golden_rows(const Golden& golden, const std::string& name, const std::string& ids_name,
                        const std::vector<int32_t>& map, int32_t pad) {
  const std::vector<int64_t> ids = golden.ints(name + ids_name);
  const std::vector<int64_t> want = golden.ints(name + ".rows");  // [1, positions, layers, columns]
  for (size_t layer = 0; layer < 2; ++layer) {
    const Hash hash(map, pad, part(golden.ints(name + ".multipliers"), layer, 2),
                    part(golden.ints(name + ".primes"), layer, 2));
    for (size_t p = 0; p < ids.size(); ++p) {
      EXPECT_EQ(hash.rows(look_back(ids, p, 4)), part(want, p * 2 + layer, ids.size() * 2))
          << name << " layer " << layer << " position " << p;
    }
  }
}

TEST(EngramRows, MatchGoldensOfTheReleasedLayout) {
  const Golden golden(testing::data_path("ops.safetensors"));
  std::vector<int32_t> identity(99092);  // the golden ids are compressed ids already
  std::iota(identity.begin(), identity.end(), 0);
  expect_golden_rows(golden, "engram_big", ".compressed_ids", identity, 2);
}

TEST(EngramRows, MatchGoldensOfASmallTable) {
  const Golden golden(testing::data_path("ops.safetensors"));
  const std::vector<int64_t> wide = golden.ints("engram_small.token_map");
  const std::vector<int32_t> map(wide.begin(), wide.end());
  expect_golden_rows(golden, "engram_small", ".ids", map, map[2]);
}

TEST(EngramRows, NothingIsSeenBeyondADeadPosition) {
  // ids [0, 128803, image, image, 19923] in the released layout, layer 1 (spec/checkpoint.md §5.6).
  std::vector<int32_t> map(129280);
  map[128803] = 98615;
  map[19923] = 15844;
  const Golden golden(testing::data_path("ops.safetensors"));
  const Hash hash(map, 2, part(golden.ints("engram_big.multipliers"), 0, 2),
                  part(golden.ints("engram_big.primes"), 0, 2));
  const auto order_2 = [](const std::vector<int64_t>& rows) {
    return std::vector<int64_t>(rows.begin(), rows.begin() + 8);
  };
  EXPECT_EQ(order_2(hash.rows(std::vector<int32_t>{19923, -1, -1, 128803})),
            (std::vector<int64_t>{4951095, 17647458, 42302169, 48904805, 79361896, 85395030,
                                  104639378, 117997033}));
  const std::vector<int64_t> at_dead = hash.rows(std::vector<int32_t>{-1, 128803, 0, -1});
  EXPECT_EQ(order_2(at_dead), (std::vector<int64_t>{4299726, 29253038, 43157972, 58397134, 65256332,
                                                    88876378, 100686433, 112312540}));
  EXPECT_EQ(at_dead, hash.rows(std::vector<int32_t>{-1, -1, -1, -1}));
}

/// One layer of two streams on two positions, the second of them dead.
class EngramOp : public ::testing::Test {
 protected:
  EngramOp() {
    EngramParams& p = hash_.params;
    p.context = context_;
    p.table = table_.view();
    p.wkv = wkv_.view();
    p.q_weight = norm_;
    p.k_weight = norm_;
    p.eps = 1e-20F;
    p.streams = streams_;
    p.trace_rows = rows_;
    p.trace_gate = gate_;
  }
  void run() { backend_->engram(hash_.params); }

  Random random_{3};
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = make_reference_backend(Numerics::kEngine, pool_);
  Hash hash_{{0, 1, 2, 3}, 0, {3, 5}, {7, 11}};
  Tensor context_ = to_tensor(std::vector<int32_t>{3, 1, -1, 2}, {2, 2});
  testing::Weight table_ = testing::random_fp8(random_, 18, 32, 1);
  testing::Weight wkv_ = testing::random_fp8(random_, 3 * 64, 64);
  Tensor norm_ = random_.tensor(DType::kBF16, {2, 64});
  Tensor streams_ = random_.tensor(DType::kBF16, {2, 2, 64});
  Tensor rows_ = Tensor(DType::kI64, {2, 2});
  Tensor gate_ = Tensor(DType::kF32, {2, 2});
};

TEST_F(EngramOp, LeavesDeadPositionsAlone) {
  const std::vector<float> before = testing::to_floats(streams_);
  run();
  const std::vector<float> after = testing::to_floats(streams_);
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 128, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + 128, before.end(), after.begin() + 128));
  EXPECT_EQ(gate_.as<float>()[2], 0.0F);
  EXPECT_EQ(rows_.as<int64_t>()[0], (3 * 3 ^ 1 * 5) % 7);
}

TEST_F(EngramOp, RefusesANaNInAGatheredRowOnly) {
  run();
  const int64_t read = rows_.as<int64_t>()[1];
  const int64_t unread = 17;
  ASSERT_EQ(std::count(rows_.as<int64_t>(), rows_.as<int64_t>() + 4, unread), 0);
  const auto error_with = [&](const Tensor& tensor, int64_t at, uint8_t byte) -> std::string {
    auto& cell = tensor.as<uint8_t>()[at];
    const uint8_t kept = std::exchange(cell, byte);
    std::string message;
    try {
      run();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
      message = error.what();
    }
    cell = kept;
    return message;
  };
  EXPECT_NE(error_with(table_.values, read * 32 + 31, 0xFF).find(fmt::format("row {}", read)),
            std::string::npos);
  EXPECT_NE(error_with(table_.values, read * 32, 0x7F), "");
  EXPECT_NE(error_with(table_.scales, read, 0xFF), "");
  EXPECT_EQ(error_with(table_.values, unread * 32, 0x7F), "");
  EXPECT_EQ(error_with(table_.scales, unread, 0xFF), "");
}

}  // namespace
}  // namespace deepinfer::ops
