#include "ops/moe.h"

#include "ops/check.h"

namespace deepinfer::ops {
namespace {

/// A network's operands: "routed w1", …
struct ExpertNames {
  std::string_view w1, w3, w2;
};

void check_expert(const ExpertNames& names, const ExpertWeights& weights, int64_t d) {
  check_rank("experts", names.w1, weights.w1.weight, 2);
  const int64_t f = weights.w1.rows();
  check_weight("experts", names.w1, weights.w1, f, d);
  check_weight("experts", names.w3, weights.w3, f, d);
  check_weight("experts", names.w2, weights.w2, d, f);
}

}  // namespace

void check(const RouteParams& p) {
  check_rank("route", "x", p.x, 2);
  check_rank("route", "gate", p.gate, 2);
  check_rank("route", "experts", p.experts, 2);
  const int64_t rows = p.x.dim(0);
  const int64_t num_experts = p.gate.dim(0);
  const int64_t chosen = p.experts.dim(1);
  DEEPINFER_CHECK(chosen >= 1 && chosen <= num_experts, "route: {} of {} experts", chosen,
                  num_experts);
  DEEPINFER_CHECK(p.temperature > 0, "route: temperature {}", p.temperature);
  check_operand("route", "x", p.x, {rows, p.x.dim(1)}, kActTypes);
  check_operand("route", "gate", p.gate, {num_experts, p.x.dim(1)}, kPlainTypes);
  check_operand("route", "bias", p.bias, {num_experts}, DType::kF32);
  check_operand("route", "experts", p.experts, {rows, chosen}, DType::kI32);
  check_operand("route", "weights", p.weights, {rows, chosen}, DType::kF32);
  check_optional("route", "trace_scores", p.trace_scores, {rows, num_experts}, DType::kF32);
}

void check(const ExpertsParams& p) {
  check_rank("experts", "x", p.x, 2);
  check_rank("experts", "experts", p.experts, 2);
  const int64_t rows = p.x.dim(0);
  const int64_t d = p.x.dim(1);
  const int64_t chosen = p.experts.dim(1);
  check_operand("experts", "x", p.x, {rows, d}, kActTypes);
  check_operand("experts", "experts", p.experts, {rows, chosen}, DType::kI32);
  check_operand("experts", "weights", p.weights, {rows, chosen}, DType::kF32);
  for (const ExpertWeights& weights : p.routed) {
    check_expert({"routed w1", "routed w3", "routed w2"}, weights, d);
  }
  check_expert({"shared w1", "shared w3", "shared w2"}, p.shared, d);
  check_operand("experts", "slot_rows", p.slot_rows, {rows, chosen, d}, p.x.dtype());
  check_operand("experts", "shared_rows", p.shared_rows, {rows, d}, p.x.dtype());
}

void check(const CombineParams& p) {
  check_rank("combine", "slot_rows", p.slot_rows, 3);
  const int64_t rows = p.slot_rows.dim(0);
  const int64_t chosen = p.slot_rows.dim(1);
  const int64_t d = p.slot_rows.dim(2);
  check_operand("combine", "experts", p.experts, {rows, chosen}, DType::kI32);
  check_operand("combine", "slot_rows", p.slot_rows, {rows, chosen, d}, kActTypes);
  check_operand("combine", "shared_rows", p.shared_rows, {rows, d}, p.slot_rows.dtype());
  check_operand("combine", "y", p.y, {rows, d}, p.slot_rows.dtype());
}

}  // namespace deepinfer::ops
