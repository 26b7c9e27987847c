#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"
#include "ops/rope_table.h"
#include "tests/support/golden.h"
#include "tests/support/operands.h"

/// The operation tests are written once and linked by every backend's test programs: each program
/// defines suite() and adds the *_cases.cc files to its sources.
namespace deepinfer::ops {

struct BackendCase {
  std::string name;
  Numerics numerics;
  std::function<std::unique_ptr<Backend>(ThreadPool&)> make;
};

inline void PrintTo(const BackendCase& backend, std::ostream* out) {
  *out << backend.name;
}

/// A random checkpoint with traces of one sequence, and what the tests need of its configuration.
struct StageModel {
  std::string name;
  std::filesystem::path checkpoint;  // its one shard
  std::filesystem::path exact_trace;
  std::filesystem::path released_trace;
  int64_t num_layers = 0;
  std::vector<int32_t> ratios;
  YarnScaling yarn;
  int64_t sinkhorn_iterations = 0;
  float swiglu_limit = 0;
  float routed_scaling = 0;
  std::vector<int64_t> engram_layers;
  std::vector<int64_t> target_layers;  // tapped for the draft stages
  int64_t window = 0;
  int64_t index_topk = 0;
  int64_t candidate_layer = 0;
  int64_t candidate_blocks = 0;
  int64_t candidate_block_size = 0;
};
StageModel nano_b(const std::filesystem::path& checkpoint, const std::filesystem::path& exact_trace,
                  const std::filesystem::path& released_trace);
StageModel nano_d(const std::filesystem::path& checkpoint, const std::filesystem::path& exact_trace,
                  const std::filesystem::path& released_trace);

struct Suite {
  std::vector<BackendCase> backends;
  /// Golden operations of the two modes; nothing: the tests report themselves as skipped.
  std::optional<std::filesystem::path> exact_ops;
  std::optional<std::filesystem::path> released_ops;
  std::vector<StageModel> models;  // none: skipped
};
const Suite& suite();

/// The parts of a suite that every backend's programs have in common: the goldens of the
/// repository, or the large ones if DEEPINFER_TEST_DATA names them.
Suite small_suite(std::vector<BackendCase> backends);
Suite large_suite(std::vector<BackendCase> backends);
/// The reference in both modes.
std::vector<BackendCase> reference_backends();

/// The suite's backends of one mode, to instantiate test suites with.
std::vector<BackendCase> backends_of(Numerics numerics);
inline std::string case_name(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

/// A backend with two threads and its operands.
class BackendTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  bool is_exact() const { return GetParam().numerics == Numerics::kExact; }

  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = GetParam().make(pool_);
  testing::Operands operands_{*backend_};
};

}  // namespace deepinfer::ops
