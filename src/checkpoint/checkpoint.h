#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "tensor/tensor.h"

namespace deepinfer::checkpoint {

struct OpenOptions {
  bool show_progress = false;  // a progress bar on stderr when opening takes over a second
  /// Also look for NaN in what open() leaves unread because it is large: Engram scale tables of
  /// more than 64 MiB, and weights (not scales) if those outside the Engram tables have more than 8
  /// GiB.
  bool verify_everything = false;
};

class SyntheticTensors;

/// An opened checkpoint directory: its configuration and every tensor as a view into the
/// memory-mapped shards, in its stored form. Immutable after open(), so it may be shared by
/// threads; views live as long as the Checkpoint.
class Checkpoint {
 public:
  /// Maps the shards and checks them against the names, dtypes and shapes that the configuration
  /// asks for (spec/checkpoint.md §2, §7). Errors: kInvalidFile or kNotFound with file, tensor and
  /// reason.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& directory,
                                                const OpenOptions& options = {});

  /// A model with random weights in memory (checkpoint/synthetic.h): what open() gives for a
  /// directory "synth:…". Errors: kInvalidArgument.
  static std::shared_ptr<const Checkpoint> synthetic(std::string_view spec);
  ~Checkpoint();

  const std::filesystem::path& directory() const { return directory_; }
  const ModelConfig& config() const { return config_; }

  /// The tensor of that canonical name ("layers.0.attn_norm.weight"). A missing name is a bug:
  /// open() has checked.
  TensorView tensor(std::string_view name) const;
  /// A product's weight with its scales: `name` without suffix ("layers.0.attn.wq_a" → .weight and
  /// .scale).
  QuantView weight(std::string_view name) const;
  bool contains(std::string_view name) const;
  /// The bytes of a tensor were copied elsewhere: their memory may go to others until tensor() is
  /// asked for it again.
  void release(std::string_view name) const;

  /// The compressed id of every token from engram_token_map.json, if the folder has one (size and
  /// range checked).
  const std::optional<std::vector<int32_t>>& engram_token_map() const { return engram_token_map_; }

  /// Names, as spelled in the files, of tensors that the configuration does not need.
  const std::vector<std::string>& ignored_tensors() const { return ignored_tensors_; }

  /// The mapped files.
  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  /// What the index file says that the tensors add up to, in bytes.
  std::optional<int64_t> declared_bytes() const { return declared_bytes_; }

  /// Identifies the weights: a hash over the names, shapes, shard sizes and a sample of their bytes
  /// (all bytes of shards up to 64 MiB).
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  friend class CheckpointLoader;
  Checkpoint();

  std::filesystem::path directory_;
  std::unique_ptr<SyntheticTensors> synthetic_;  // null: the shards have the tensors
  ModelConfig config_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, TensorView, std::less<>> tensors_;  // canonical names
  std::vector<std::string> ignored_tensors_;
  std::optional<int64_t> declared_bytes_;
  std::optional<std::vector<int32_t>> engram_token_map_;
  uint64_t fingerprint_ = 0;
};

}  // namespace deepinfer::checkpoint
