#include "base/error.h"
#include "cache/kv_cache.h"
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
  if (backend != "auto" && backend != "cuda" && backend != "cpu" && backend != "reference") {
    fail(ErrorCode::kInvalidArgument,
         "backend is \"{}\", expected \"auto\", \"cuda\", \"cpu\" or \"reference\"", backend);
  }
  if (numerics != "engine" && numerics != "exact") {
    fail(ErrorCode::kInvalidArgument, "numerics is \"{}\", expected \"engine\" or \"exact\"",
         numerics);
  }
  if (numerics == "exact" && (backend == "cpu" || backend == "cuda")) {
    fail(ErrorCode::kInvalidArgument,
         "numerics is \"exact\" and backend is \"{}\", expected backend \"reference\"", backend);
  }
  check_range("device", device, 0, 1023);
  check_range("host_cache_bytes", host_cache_bytes, 0, int64_t{1} << 50);
  check_range("cache_dir_bytes", cache_dir_bytes, int64_t{1} << 20, int64_t{1} << 50);
  if (!prefix_cache && (host_cache_bytes > 0 || !cache_dir.empty())) {
    fail(ErrorCode::kInvalidArgument,
         "prefix_cache is off, but host_cache_bytes or cache_dir asks to keep what it holds");
  }
  if (engram != "pinned" && engram != "file") {
    fail(ErrorCode::kInvalidArgument, "engram is \"{}\", expected \"pinned\" or \"file\"", engram);
  }
  check_range("threads", threads, 0, 4096);
  check_range("prefill_chunk", prefill_chunk, 1, 65536);
  check_range("max_batch", max_batch, 1, 65536);
  if (max_model_len != 0) check_range("max_model_len", max_model_len, 2, kMaxTokens);
  check_range("kv_tokens", kv_tokens, 0, kMaxTokens);
  if (replay != "exact" && replay != "bounded") {
    fail(ErrorCode::kInvalidArgument, "replay is \"{}\", expected \"exact\" or \"bounded\"",
         replay);
  }
  check_range("keep_tokens", keep_tokens, 1, kMaxTokens);
  check_range("snapshots", snapshots, 0, int64_t{1} << 30);
  check_range("snapshot_interval", snapshot_interval, cache::kPageTokens, kMaxTokens);
  if (snapshot_interval % cache::kPageTokens != 0) {
    fail(ErrorCode::kInvalidArgument, "snapshot_interval is {}, expected a multiple of {}",
         snapshot_interval, cache::kPageTokens);
  }
}

}  // namespace deepinfer
