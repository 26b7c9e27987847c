#include "tests/ops/suite.h"

namespace deepinfer::ops {

StageModel nano_b(const std::filesystem::path& checkpoint, const std::filesystem::path& exact_trace,
                  const std::filesystem::path& released_trace) {
  return {.name = "nano-b",
          .checkpoint = checkpoint,
          .exact_trace = exact_trace,
          .released_trace = released_trace,
          .num_layers = 6,
          .ratios = {0, 0, 2, 2, 1, 1},
          .yarn = {.factor = 16},
          .sinkhorn_iterations = 20,
          .swiglu_limit = 10,
          .routed_scaling = 1.5F,
          .engram_layers = {1, 3},
          .target_layers = {3, 5},
          .window = 128,
          .index_topk = 16,
          .candidate_layer = 4,
          .candidate_blocks = 3,
          .candidate_block_size = 8};
}

StageModel nano_d(const std::filesystem::path& checkpoint, const std::filesystem::path& exact_trace,
                  const std::filesystem::path& released_trace) {
  return {.name = "nano-d",
          .checkpoint = checkpoint,
          .exact_trace = exact_trace,
          .released_trace = released_trace,
          .num_layers = 4,
          .ratios = {1, 1, 1, 0},
          .yarn = {.factor = 8, .beta_fast = 16, .beta_slow = 2, .original_max_positions = 4096},
          .sinkhorn_iterations = 7,
          .swiglu_limit = 2,
          .routed_scaling = 2.5F,
          .engram_layers = {},
          .target_layers = {},
          .window = 64,
          .index_topk = 20,
          .candidate_layer = 0,
          .candidate_blocks = 6,
          .candidate_block_size = 4};
}

Suite small_suite(std::vector<BackendCase> backends) {
  constexpr auto kShard = "nano-d/model-00001-of-00001.safetensors";
  return {.backends = std::move(backends),
          .exact_ops = testing::data_path("ops.safetensors"),
          .released_ops = testing::data_path("ops_released.safetensors"),
          .models = {nano_d(testing::data_path(kShard),
                            testing::data_path("nano-d/trace_exact.safetensors"),
                            testing::data_path("nano-d/trace_released.safetensors"))}};
}

Suite large_suite(std::vector<BackendCase> backends) {
  Suite suite{.backends = std::move(backends), .exact_ops = {}, .released_ops = {}, .models = {}};
  const auto folder = testing::large_data_path("golden");
  if (!folder) return suite;
  suite.exact_ops = *folder / "ops.safetensors";
  suite.released_ops = *folder / "released" / "ops.safetensors";
  const auto model = [&](const char* name, auto make) {
    return make(*folder / name / "model-00001-of-00001.safetensors",
                *folder / name / "trace.safetensors",
                *folder / "released" / name / "trace.safetensors");
  };
  suite.models = {model("nano-b", nano_b), model("nano-d", nano_d)};
  return suite;
}

std::vector<BackendCase> reference_backends() {
  const auto make = [](Numerics numerics) {
    return [numerics](ThreadPool& pool) { return make_reference_backend(numerics, pool); };
  };
  return {{"ReferenceEngine", Numerics::kEngine, make(Numerics::kEngine)},
          {"ReferenceExact", Numerics::kExact, make(Numerics::kExact)}};
}

std::vector<BackendCase> backends_of(Numerics numerics) {
  std::vector<BackendCase> result;
  for (const BackendCase& backend : suite().backends) {
    if (backend.numerics == numerics) result.push_back(backend);
  }
  return result;
}

}  // namespace deepinfer::ops
