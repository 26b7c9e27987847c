#include "cpu/dispatch.h"

#include <fmt/ranges.h>

#include <cstdlib>

#include "base/error.h"

namespace deepinfer::cpu {

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> levels;
#if defined(__x86_64__)
  // These look at what the operating system saves, too.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && __builtin_cpu_supports("avx512bf16")) levels.push_back(&kernels_avx512bf16());
  if (has_avx512) levels.push_back(&kernels_avx512());
  if (has_avx2) levels.push_back(&kernels_avx2());
#elif defined(__aarch64__)
  levels.push_back(&kernels_neon());
#endif
  levels.push_back(&kernels_portable());
  return levels;
}

const Kernels& choose_kernels(std::string_view level) {
  const std::vector<const Kernels*> levels = available_kernels();
  const char* variable = std::getenv("DEEPINFER_CPU_LEVEL");  // NOLINT(concurrency-mt-unsafe)
  if (level.empty() && variable != nullptr) level = variable;
  if (level.empty()) return *levels.front();
  std::vector<std::string_view> names;
  for (const Kernels* kernels : levels) {
    if (level == kernels->level) return *kernels;
    names.emplace_back(kernels->level);
  }
  fail(ErrorCode::kInvalidArgument,
       "CPU level (DEEPINFER_CPU_LEVEL) is \"{}\", this processor has {}", level,
       fmt::join(names, ", "));
}

}  // namespace deepinfer::cpu
