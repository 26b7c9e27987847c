// A row's bits do not depend on its neighbours, on the number of rows or on threads (design.md,
// "Same tokens everywhere"): probe rows alone equal the same rows anywhere in random batches.
#include <algorithm>
#include <map>
#include <numeric>

#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::Operands;
using testing::Random;

constexpr uint64_t kSeed = 20261201;
constexpr int64_t kWidth = 96;  // d: three blocks of 32, not a power of two
constexpr int64_t kStreams = 3;
constexpr int64_t kNumExperts = 5;
constexpr int64_t kChosen = 2;

/// The batch of one run. Row data are functions of the row's id, weights of a salt alone.
class Batch {
 public:
  Batch(Backend& backend, std::span<const int64_t> ids)
      : backend(backend), operands(backend), ids_(ids) {}

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  /// [B, dims…] activations of about unit size.
  TensorView act(uint64_t salt, Shape row) {
    return operands.put_act(values(salt, row), whole(row));
  }
  TensorView f32(uint64_t salt, Shape row) {
    return operands.put_f32(values(salt, row), whole(row));
  }
  /// [B, count] different ids below `bound` per row, in random order.
  TensorView choices(uint64_t salt, int64_t count, int64_t bound) {
    std::vector<int32_t> all;
    for (const int64_t id : ids_) {
      Random random = random_of(salt, id);
      std::vector<int32_t> order(static_cast<size_t>(bound));
      std::iota(order.begin(), order.end(), 0);
      for (int64_t i = 0; i < count; ++i) {
        std::swap(order[static_cast<size_t>(i)],
                  order[static_cast<size_t>(i + random.below(bound - i))]);
      }
      all.insert(all.end(), order.begin(), order.begin() + count);
    }
    return operands.put_i32(all, {size(), count});
  }
  TensorView positions() {
    std::vector<int64_t> all;
    for (const int64_t id : ids_) all.push_back(id * 331);
    return operands.put(testing::to_tensor(all, {size()}));
  }
  TensorView weight(uint64_t salt, DType dtype, Shape shape, float scale = 1) {
    Random random(kSeed + salt);
    return operands.put(random.tensor(dtype, shape, scale));
  }
  QuantView fp8(uint64_t salt, int64_t out, int64_t in, int64_t scale_rows = 32) {
    Random random(kSeed + salt);
    return keep(testing::random_fp8(random, out, in, scale_rows));
  }
  QuantView fp4(uint64_t salt, int64_t out, int64_t in) {
    Random random(kSeed + salt);
    return keep(testing::random_fp4(random, out, in));
  }
  TensorView out(Shape row) { return operands.zeros_act(whole(row)); }
  TensorView out(DType dtype, Shape row) { return operands.zeros(dtype, whole(row)); }

  Backend& backend;
  Operands operands;

 private:
  static Random random_of(uint64_t salt, int64_t id) {
    return Random(kSeed + salt * 1'000'003 + static_cast<uint64_t>(id) * 7919);
  }
  Shape whole(const Shape& row) const {
    std::vector<int64_t> dims = {size()};
    dims.insert(dims.end(), row.dims().begin(), row.dims().end());
    return Shape(std::span<const int64_t>(dims));
  }
  std::vector<float> values(uint64_t salt, const Shape& row) const {
    std::vector<float> all;
    for (const int64_t id : ids_) {
      const std::vector<float> v = random_of(salt, id).normals(row.num_elements());
      all.insert(all.end(), v.begin(), v.end());
    }
    return all;
  }
  QuantView keep(const testing::Weight& weight) {
    return {operands.put(weight.values), operands.put(weight.scales), weight.scale_rows};
  }

  std::span<const int64_t> ids_;
};

/// Runs one operation and returns its results, each [B, …].
using Operation = std::vector<TensorView> (*)(Batch& batch);

std::vector<TensorView> run_embed(Batch& b) {
  const EmbedParams p{.token = b.choices(1, 1, 50).reshape({b.size()}),
                      .table = b.weight(2, DType::kBF16, {50, kWidth}),
                      .streams = b.out({kStreams, kWidth})};
  b.backend.embed(p);
  return {p.streams};
}

std::vector<TensorView> run_engram(Batch& b) {
  constexpr int64_t kColumns = 4;
  const std::vector<int64_t> multipliers = {7, 1001, 77};
  const std::vector<int64_t> primes = {11, 13, 17, 19};
  const std::vector<int64_t> offsets = {0, 11, 24, 41};
  std::vector<int32_t> map(50);
  std::iota(map.begin(), map.end(), 0);
  const EngramParams p{.context = b.choices(1, 3, 50),
                       .token_map = b.operands.put_i32(map, {50}),
                       .pad = 2,
                       .multipliers = b.operands.put(testing::to_tensor(multipliers, {3})),
                       .primes = b.operands.put(testing::to_tensor(primes, {kColumns})),
                       .offsets = b.operands.put(testing::to_tensor(offsets, {kColumns})),
                       .table = b.fp8(2, 60, 32, 1),
                       .wkv = b.fp8(3, (kStreams + 1) * kWidth, kColumns * 32),
                       .q_weight = b.weight(4, DType::kBF16, {kStreams, kWidth}),
                       .k_weight = b.weight(5, DType::kBF16, {kStreams, kWidth}),
                       .eps = 1e-20F,
                       .streams = b.act(6, {kStreams, kWidth}),
                       .trace_rows = {},
                       .trace_gate = b.out(DType::kF32, {kStreams})};
  b.backend.engram(p);
  return {p.streams, p.trace_gate};
}

std::vector<TensorView> run_site_begin(Batch& b) {
  constexpr int64_t kCoefficients = 2 * kStreams + kStreams * kStreams;
  const SiteBeginParams p{.streams = b.act(1, {kStreams, kWidth}),
                          .pre_prev = b.f32(2, {kStreams}),
                          .fn = b.weight(3, DType::kF32, {kCoefficients, kStreams * kWidth}, 0.1F),
                          .base = b.weight(4, DType::kF32, {kCoefficients}),
                          .scale = b.weight(5, DType::kF32, {3}),
                          .norm = b.weight(6, DType::kBF16, {kWidth}),
                          .eps = 1e-20F,
                          .hc_eps = 1e-6F,
                          .sinkhorn_iterations = 5,
                          .x = b.out({kWidth}),
                          .pre = b.out(DType::kF32, {kStreams}),
                          .post = b.out(DType::kF32, {kStreams}),
                          .comb = b.out(DType::kF32, {kStreams, kStreams})};
  b.backend.site_begin(p);
  return {p.x, p.pre, p.post, p.comb};
}

std::vector<TensorView> run_site_end(Batch& b) {
  const SiteEndParams p{.y = b.act(1, {kWidth}),
                        .post = b.f32(2, {kStreams}),
                        .comb = b.f32(3, {kStreams, kStreams}),
                        .streams = b.act(4, {kStreams, kWidth})};
  b.backend.site_end(p);
  return {p.streams};
}

std::vector<TensorView> run_qkv(Batch& b) {
  const std::vector<float> inv_freq = rope_inv_freq(16, 10000);
  const QkvParams p{.x = b.act(1, {kWidth}),
                    .position = b.positions(),
                    .wq_a = b.fp8(2, 64, kWidth),
                    .q_norm = b.weight(3, DType::kBF16, {64}),
                    .wq_b = b.fp8(4, 3 * 32, 64),
                    .wkv = b.fp8(5, 32, kWidth),
                    .kv_norm = b.weight(6, DType::kBF16, {32}),
                    .rope = {b.operands.put_f32(inv_freq, {8})},
                    .eps = 1e-20F,
                    .r = b.out({64}),
                    .q = b.out({3, 32}),
                    .window_codes = b.out(DType::kE4M3, {32}),
                    .window_scales = b.out(DType::kE8M0, {1})};
  b.backend.qkv(p);
  return {p.r, p.q, p.window_codes, p.window_scales};
}

std::vector<TensorView> run_output_projection(Batch& b) {
  const OutputProjectionParams p{.o = b.act(1, {6, 32}),
                                 .groups = 2,
                                 .wo_a = b.fp8(2, 2 * 32, 3 * 32),
                                 .wo_b = b.fp8(3, kWidth, 2 * 32),
                                 .y = b.out({kWidth})};
  b.backend.output_projection(p);
  return {p.y};
}

std::vector<TensorView> run_route(Batch& b) {
  const RouteParams p{.x = b.act(1, {kWidth}),
                      .gate = b.weight(2, DType::kBF16, {kNumExperts, kWidth}, 0.1F),
                      .bias = b.weight(3, DType::kF32, {kNumExperts}, 0.1F),
                      .scaling = 1.5F,
                      .experts = b.out(DType::kI32, {kChosen}),
                      .weights = b.out(DType::kF32, {kChosen}),
                      .trace_scores = b.out(DType::kF32, {kNumExperts})};
  b.backend.route(p);
  return {p.experts, p.weights, p.trace_scores};
}

std::vector<TensorView> run_experts(Batch& b) {
  std::vector<ExpertWeights> routed;
  for (uint64_t e = 0; e < kNumExperts; ++e) {
    routed.push_back(
        {b.fp4(10 + e, 64, kWidth), b.fp4(20 + e, 64, kWidth), b.fp4(30 + e, kWidth, 64)});
  }
  const ExpertsParams p{
      .x = b.act(1, {kWidth}),
      .experts = b.choices(2, kChosen, kNumExperts),
      .weights = b.f32(3, {kChosen}),
      .routed = routed,
      .shared = {b.fp8(4, 64, kWidth), b.fp8(5, 64, kWidth), b.fp8(6, kWidth, 64)},
      .limit = 10,
      .slot_rows = b.out({kChosen, kWidth}),
      .shared_rows = b.out({kWidth})};
  b.backend.experts(p);
  return {p.slot_rows, p.shared_rows};
}

std::vector<TensorView> run_combine(Batch& b) {
  const CombineParams p{.experts = b.choices(1, 4, kNumExperts),
                        .slot_rows = b.act(2, {4, kWidth}),
                        .shared_rows = b.act(3, {kWidth}),
                        .y = b.out({kWidth})};
  b.backend.combine(p);
  return {p.y};
}

std::vector<TensorView> run_tap(Batch& b) {
  const TapParams p{.streams = b.act(1, {kStreams, kWidth}), .out = b.out({kWidth})};
  b.backend.tap(p);
  return {p.out};
}

std::vector<TensorView> run_logits(Batch& b) {
  const LogitsParams p{.streams = b.act(1, {kStreams, kWidth}),
                       .pre = b.f32(2, {kStreams}),
                       .norm = b.weight(3, DType::kBF16, {kWidth}),
                       .head = b.weight(4, DType::kBF16, {131, kWidth}),
                       .eps = 1e-20F,
                       .logits = b.out(DType::kF32, {131}),
                       .trace_collapse = {},
                       .trace_norm = {}};
  b.backend.logits(p);
  return {p.logits};
}

/// The results' bytes, row by row.
std::vector<std::vector<std::byte>> run(const BackendCase& backend_case, int threads,
                                        Operation operation, std::span<const int64_t> ids) {
  ThreadPool pool(threads);
  const std::unique_ptr<Backend> backend = backend_case.make(pool);
  Batch batch(*backend, ids);
  std::vector<std::vector<std::byte>> rows(ids.size());
  for (const TensorView& result : operation(batch)) {
    const Tensor host = batch.operands.get(result);
    const auto bytes =
        static_cast<size_t>(host.view().num_bytes()) / std::max(ids.size(), size_t{1});
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto* row = static_cast<const std::byte*>(host.view().data()) + i * bytes;
      rows[i].insert(rows[i].end(), row, row + bytes);
    }
  }
  return rows;
}

class RowInvariance : public ::testing::TestWithParam<BackendCase> {
 protected:
  static void check(Operation operation) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
    Random random(kSeed);
    const std::vector<int64_t> probes = {3, 77, 150};
    std::map<int64_t, std::vector<std::byte>> alone;
    for (const int64_t& id : probes) {
      alone[id] = run(GetParam(), 1, operation, std::span(&id, 1)).at(0);
      ASSERT_FALSE(alone[id].empty());
    }
    for (const int threads : {1, 2, 5}) {
      for (const int64_t size : {0, 1, 7, 127, 128, 129}) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < size; ++i) {
          ids.push_back(i < 3 ? probes[static_cast<size_t>(i)] : 1000 + random.below(100'000));
        }
        for (int64_t i = size - 1; i > 0; --i) {
          std::swap(ids[static_cast<size_t>(i)], ids[static_cast<size_t>(random.below(i + 1))]);
        }
        const auto rows = run(GetParam(), threads, operation, ids);
        for (size_t i = 0; i < ids.size(); ++i) {
          if (!alone.contains(ids[i])) continue;
          EXPECT_TRUE(rows[i] == alone[ids[i]])
              << "row " << i << " of " << size << ", " << threads << " threads";
        }
      }
    }
  }
};

TEST_P(RowInvariance, Embed) {
  check(run_embed);
}
TEST_P(RowInvariance, Engram) {
  check(run_engram);
}
TEST_P(RowInvariance, SiteBegin) {
  check(run_site_begin);
}
TEST_P(RowInvariance, SiteEnd) {
  check(run_site_end);
}
TEST_P(RowInvariance, Qkv) {
  check(run_qkv);
}
TEST_P(RowInvariance, OutputProjection) {
  check(run_output_projection);
}
TEST_P(RowInvariance, Route) {
  check(run_route);
}
TEST_P(RowInvariance, Experts) {
  check(run_experts);
}
TEST_P(RowInvariance, Combine) {
  check(run_combine);
}
TEST_P(RowInvariance, Tap) {
  check(run_tap);
}
TEST_P(RowInvariance, Logits) {
  check(run_logits);
}

INSTANTIATE_TEST_SUITE_P(Backends, RowInvariance, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
