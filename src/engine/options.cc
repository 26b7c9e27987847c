#include "base/error.h"
#include "deepinfer/engine.h"

namespace deepinfer {
namespace {

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, expected {} to {}", field, value, low, high);
  }
}

}  // namespace

void EngineOptions::validate() const {
  constexpr int64_t kMaxTokens = int64_t{1} << 40;
  if (model.empty()) fail(ErrorCode::kInvalidArgument, "model is empty, expected a directory");
  if (backend != "auto" && backend != "cpu" && backend != "reference") {
    fail(ErrorCode::kInvalidArgument,
         "backend is \"{}\", expected \"auto\", \"cpu\" or \"reference\"", backend);
  }
  if (numerics != "engine" && numerics != "exact") {
    fail(ErrorCode::kInvalidArgument, "numerics is \"{}\", expected \"engine\" or \"exact\"",
         numerics);
  }
  if (numerics == "exact" && backend == "cpu") {
    fail(ErrorCode::kInvalidArgument,
         "numerics is \"exact\" and backend is \"cpu\", expected backend \"reference\"");
  }
  check_range("threads", threads, 0, 4096);
  check_range("prefill_chunk", prefill_chunk, 1, 65536);
  check_range("max_batch", max_batch, 1, 65536);
  if (max_model_len != 0) check_range("max_model_len", max_model_len, 2, kMaxTokens);
  check_range("kv_tokens", kv_tokens, 0, kMaxTokens);
}

}  // namespace deepinfer
