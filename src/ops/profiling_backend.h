#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace deepinfer::ops {

/// The operations of a Backend, in the order a step runs them.
enum class Operation : uint8_t {
  kResolveRows,
  kEmbed,
  kEngram,
  kSiteBegin,
  kQkv,
  kCompress,
  kIndexSelect,
  kSparseAttention,
  kWindowStore,
  kOutputProjection,
  kSiteEnd,
  kRoute,
  kExperts,
  kCombine,
  kTap,
  kLogits,
  kSample,
  kCommit,
};
inline constexpr size_t kNumOperations = 18;
/// "resolve_rows", …
std::string_view to_string(Operation operation);

/// What all calls of one operation cost since the start.
struct OperationTotals {
  int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;       // see Cost
  double operations = 0;  // see Cost
};
using Profile = std::array<OperationTotals, kNumOperations>;  // by Operation

/// Wraps a backend and adds up what each operation costs. Waits for every operation, so it times a
/// backend that computes asynchronously without its overlap. On backend "cuda" it counts times
/// only. Owned by the engine thread, like the backend it wraps.
class ProfilingBackend : public Backend {
 public:
  virtual const Profile& profile() const = 0;
};
std::unique_ptr<ProfilingBackend> make_profiling_backend(std::unique_ptr<Backend> inner);

}  // namespace deepinfer::ops
