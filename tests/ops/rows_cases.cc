// resolve_rows and commit: where a step's rows are and how a slot leaves it.
#include <array>

#include "base/error.h"
#include "tests/ops/step_caches.h"
#include "tests/ops/suite.h"

namespace deepinfer::ops {
namespace {

using Ints = std::vector<int64_t>;

class Rows : public BackendTest {
 protected:
  template <typename T>
  void write(const TensorView& to, std::vector<T> values) {
    backend_->copy(TensorView(values.data(), to.dtype(), to.shape()), to);
    backend_->synchronize();
  }

  StepCaches caches_{*backend_, operands_, {.ngram = 4, .drafts = 3}};
};

TEST_P(Rows, EveryRoleGetsTokenPositionAndContext) {
  write<int64_t>(caches_.slots.committed, {1'000'000'000'000, 2});
  write<int32_t>(caches_.slots.last_token, {50, 60});
  write<int32_t>(caches_.slots.drafts, {51, 52, 53, 61, 62, 63});
  write<int32_t>(caches_.slots.history, {49, 48, 47, 59, 58, -1});
  const std::vector<PlanRow> plan = {{0, 2, -1, RowRole::kVerify},
                                     {1, 1, 71, RowRole::kPrefill},
                                     {0, 0, -1, RowRole::kVerify},
                                     {1, 0, 70, RowRole::kPrefill},
                                     {0, 1, -1, RowRole::kVerify}};
  const RowBatch rows = caches_.resolve(plan);
  EXPECT_EQ(operands_.ints(rows.token), (Ints{52, 71, 50, 70, 51}));
  EXPECT_EQ(operands_.ints(rows.position),
            (Ints{1'000'000'000'002, 3, 1'000'000'000'000, 2, 1'000'000'000'001}));
  EXPECT_EQ(operands_.ints(rows.slot), (Ints{0, 1, 0, 1, 0}));
  EXPECT_EQ(operands_.ints(rows.span_first),
            (Ints{1'000'000'000'000, 2, 1'000'000'000'000, 2, 1'000'000'000'000}));
  EXPECT_EQ(operands_.ints(rows.span_rows), (Ints{2, 4, 0, 3, 1}));
  EXPECT_EQ(operands_.ints(rows.context), (Ints{52, 51, 50, 49,  //
                                                71, 70, 59, 58,  //
                                                50, 49, 48, 47,  //
                                                70, 59, 58, -1,  //
                                                51, 50, 49, 48}));
}

TEST_P(Rows, DecodeTakesTheLastTokenAndReplayItsOwn) {
  // Slot 1 restarts at 5: its look-back tokens come from the history.
  write<int64_t>(caches_.slots.committed, {10, 5});
  write<int32_t>(caches_.slots.last_token, {50, 60});
  write<int32_t>(caches_.slots.history, {49, 48, 47, 59, 58, 57});
  const std::vector<PlanRow> plan = {
      {0, 0, -1, RowRole::kDecode}, {1, 0, 9, RowRole::kReplay}, {1, 1, 8, RowRole::kReplay}};
  const RowBatch rows = caches_.resolve(plan);
  EXPECT_EQ(operands_.ints(rows.token), (Ints{50, 9, 8}));
  EXPECT_EQ(operands_.ints(rows.position), (Ints{10, 5, 6}));
  EXPECT_EQ(operands_.ints(rows.role), (Ints{1, 3, 3}));
  EXPECT_EQ(operands_.ints(rows.context), (Ints{50, 49, 48, 47, 9, 59, 58, 57, 8, 9, 59, 58}));
}

TEST_P(Rows, CommitAdvancesTheSlotToItsLastRow) {
  write<int64_t>(caches_.slots.committed, {10, 5});
  write<int32_t>(caches_.slots.last_token, {50, 60});
  write<int32_t>(caches_.slots.drafts, {51, 52, 53, 61, 62, 63});
  write<int32_t>(caches_.slots.history, {49, 48, 47, 59, 58, 57});
  constexpr int32_t kVocab = 80;
  constexpr int32_t kPromptBit = INT32_MIN;
  std::vector<int32_t> seen(2 * kVocab);
  seen[51] = kPromptBit + 4;
  const TensorView counts = operands_.put_i32(seen, {2, kVocab});
  const std::vector<PlanRow> plan = {{0, 0, -1, RowRole::kVerify},
                                     {0, 1, -1, RowRole::kVerify},
                                     {0, 2, -1, RowRole::kVerify},
                                     {1, 0, 33, RowRole::kPrefill},
                                     {1, 1, 34, RowRole::kPrefill}};
  const RowBatch rows = caches_.resolve(plan);
  // Slot 0 accepts one draft of two and draws 77; slot 1's prompt goes on.
  const std::array entries = {CommitEntry{0, 1, 2}, CommitEntry{1, 4, -1}};
  backend_->commit({.entries = entries,
                    .rows = rows,
                    .token = operands_.put_i32(std::array{75, 76, 77}, {3}),
                    .counts = counts,
                    .slots = caches_.slots});
  EXPECT_EQ(operands_.ints(caches_.slots.committed), (Ints{12, 7}));
  EXPECT_EQ(operands_.ints(caches_.slots.last_token), (Ints{77, 60}));
  EXPECT_EQ(operands_.ints(caches_.slots.history), (Ints{51, 50, 49, 34, 33, 59}));
  Ints want(2 * kVocab);
  want[51] = kPromptBit + 5;
  want[77] = 1;
  EXPECT_EQ(operands_.ints(counts), want);
}

TEST_P(Rows, ASpanOutOfOrderIsRefused) {
  const std::vector<PlanRow> plan = plan_rows(0, 0, 2);
  const RowBatch rows = caches_.resolve(plan);
  const std::array<int32_t, 2> begin = {0, 0};
  const std::array<int32_t, 2> size = {2, 2};
  const std::array<int32_t, 2> swapped = {1, 0};
  EXPECT_THROW(backend_->resolve_rows({.plan = plan,
                                       .span_begin = begin,
                                       .span_size = size,
                                       .span_rows = swapped,
                                       .slots = caches_.slots,
                                       .out = rows}),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, Rows, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
