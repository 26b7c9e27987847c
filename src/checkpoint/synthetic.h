#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/names.h"
#include "checkpoint/presets.h"

namespace deepinfer::checkpoint {

/// Models that need no files: "synth:PRESET[,layers=N][,experts=N][,engram=small]", where small
/// tables have the rows of the preset "flash-slice". Weights are those that `deepinfer synth`
/// writes for the same preset with seed 0.
inline constexpr std::string_view kSyntheticPrefix = "synth:";

/// Errors: kInvalidArgument, naming what is wrong with `spec`.
ModelConfig synthetic_config(std::string_view spec);

/// A preset with overrides, checked to be a model that can be made. Errors: kInvalidArgument.
ModelConfig checked_preset(std::string_view preset, const PresetOverrides& overrides);

/// Engram's compressed ids of a model without a tokenizer: those beyond the compressed size share
/// those of the first ones.
std::vector<int32_t> synthetic_token_map(const ModelConfig& config);

/// Random tensors in memory of their own, each made when it is asked for. Any thread.
class SyntheticTensors {
 public:
  explicit SyntheticTensors(const ModelConfig& config);
  ~SyntheticTensors();
  SyntheticTensors(const SyntheticTensors&) = delete;
  SyntheticTensors& operator=(const SyntheticTensors&) = delete;

  /// Every tensor's place, not made yet.
  std::map<std::string, TensorView, std::less<>> views() const;
  /// Fills the tensor unless it is there.
  void make(std::string_view name);
  /// Gives its memory back.
  void release(std::string_view name);

 private:
  struct Entry {
    ExpectedTensor tensor;
    std::byte* data;
    bool made = false;
  };

  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;  // guards everything below
  std::map<std::string, Entry, std::less<>> entries_;
  ThreadPool pool_{0};
};

}  // namespace deepinfer::checkpoint
