#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"
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

struct Suite {
  std::vector<BackendCase> backends;
  /// Golden operations of the two modes; nothing: the tests report themselves as skipped.
  std::optional<std::filesystem::path> exact_ops;
  std::optional<std::filesystem::path> released_ops;
};
const Suite& suite();

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
