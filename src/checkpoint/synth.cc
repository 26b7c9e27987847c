#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "checkpoint/names.h"
#include "checkpoint/presets.h"
#include "checkpoint/random_weights.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/synthetic.h"
#include "deepinfer/checkpoint.h"

namespace deepinfer {
namespace {

using checkpoint::ExpectedTensor;
using checkpoint::ModelConfig;

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kMebi = int64_t{1} << 20;

/// A folder beside `target` that becomes it, or is removed with its content.
class PendingDirectory {
 public:
  explicit PendingDirectory(std::filesystem::path target) : target_(std::move(target)) {
    if (std::filesystem::exists(target_) &&
        !(std::filesystem::is_directory(target_) && std::filesystem::is_empty(target_))) {
      fail(ErrorCode::kInvalidArgument, "{}: already exists; give a new or an empty directory",
           target_.string());
    }
    std::filesystem::create_directories(target_.parent_path());
    std::string pattern = target_.string() + ".tmp.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      fail(ErrorCode::kIo, "{}: cannot create a directory beside it", target_.string());
    }
    path_ = pattern;
    // mkdtemp makes the directory private; give it the permissions that mkdir would have given.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::chmod(path_.c_str(), 0777 & ~mask);
  }
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;
  ~PendingDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  void commit() {
    std::filesystem::rename(path_, target_);
    path_.clear();
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
};

/// Writes the files of one checkpoint.
class Synthesizer {
 public:
  Synthesizer(const SynthOptions& options, const ModelConfig& config)
      : options_(options),
        config_(config),
        shards_(static_cast<size_t>(checkpoint::num_shards(config))) {
    checkpoint::for_each_tensor(config, [this](const ExpectedTensor& tensor) {
      shards_[static_cast<size_t>(tensor.shard)].push_back(tensor);
      total_bytes_ += tensor.num_bytes();
    });
  }

  void write(const std::filesystem::path& directory) {
    check_space(directory);
    ProgressBar progress("writing", total_bytes_ / kMebi, "MiB");
    progress_ = options_.show_progress ? &progress : nullptr;
    for (size_t shard = 0; shard < shards_.size(); ++shard) write_shard(directory, shard);
    write_index(directory);
    write_text(directory / "config.json", checkpoint::to_json(config_));
    if (!config_.engram_layers.empty()) write_token_map(directory);
  }

 private:
  static void write_text(const std::filesystem::path& path, const std::string& text) {
    FileWriter file(path);
    file.write(text);
    file.commit();
  }

  void check_space(const std::filesystem::path& directory) const {
    constexpr double kGib = 1 << 30;
    constexpr int64_t kHeaderBytes = 400;  // per tensor: header entry and index line
    int64_t needed = options_.sparse ? 0 : total_bytes_;
    for (const auto& shard : shards_) needed += static_cast<int64_t>(shard.size()) * kHeaderBytes;
    const auto available = static_cast<int64_t>(
        std::min<uintmax_t>(std::filesystem::space(directory).available, uintmax_t{1} << 62));
    if (needed > available) {
      fail(ErrorCode::kResourceExhausted,
           "{}: the checkpoint takes {:.2f} GiB and {:.2f} GiB are free; choose fewer layers or "
           "experts, another "
           "directory, or sparse files",
           directory.parent_path().string(), static_cast<double>(needed) / kGib,
           static_cast<double>(available) / kGib);
    }
  }

  std::string file_name(size_t shard) const {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_.size());
  }

  void write_shard(const std::filesystem::path& directory, size_t shard) {
    std::map<std::string_view, const ExpectedTensor*> by_name;
    std::vector<checkpoint::TensorSpec> specs;
    for (const ExpectedTensor& tensor : shards_[shard]) {
      by_name.emplace(tensor.name, &tensor);
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    checkpoint::SafetensorsWriter writer(directory / file_name(shard), std::move(specs));
    for (const checkpoint::TensorSpec& spec : writer.tensors()) {
      if (options_.sparse) {
        writer.skip(spec.num_bytes());
        done_bytes_ += spec.num_bytes();
      } else {
        write_tensor(*by_name.at(spec.name), writer);
      }
    }
    writer.commit();
  }

  void write_tensor(const ExpectedTensor& tensor, checkpoint::SafetensorsWriter& writer) {
    const checkpoint::RandomWeights weights(options_.seed, tensor);
    const int64_t bytes = tensor.num_bytes();
    buffer_.resize(
        static_cast<size_t>(std::max<int64_t>(kPieceBytes, static_cast<int64_t>(buffer_.size()))));
    for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      if (options_.interrupted && options_.interrupted()) {
        fail(ErrorCode::kResourceExhausted, "{}: interrupted before it was complete",
             options_.directory.string());
      }
      const int64_t count = std::min(kPieceBytes, bytes - begin);
      constexpr int64_t kGrain = int64_t{64} << 10;  // a multiple of the 8 bytes that fill() needs
      const int64_t grains = (count + kGrain - 1) / kGrain;
      pool_.parallel_for(grains, 1, [&](int64_t first, int64_t last) {
        const int64_t from = first * kGrain;
        const int64_t to = std::min(last * kGrain, count);
        weights.fill(begin + from, std::span(buffer_).subspan(static_cast<size_t>(from),
                                                              static_cast<size_t>(to - from)));
      });
      writer.write(std::span<const std::byte>(buffer_).first(static_cast<size_t>(count)));
      done_bytes_ += count;
      if (progress_ != nullptr) progress_->update(done_bytes_ / kMebi);
    }
  }

  void write_index(const std::filesystem::path& directory) const {
    std::string text = fmt::format(
        "{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{", total_bytes_);
    const char* separator = "\n";
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      for (const ExpectedTensor& tensor : shards_[shard]) {
        text += fmt::format("{}    \"{}\": \"{}\"", separator, tensor.name, file_name(shard));
        separator = ",\n";
      }
    }
    write_text(directory / "model.safetensors.index.json", text + "\n  }\n}\n");
  }

  void write_token_map(const std::filesystem::path& directory) const {
    std::string text = "[";
    const char* separator = "";
    for (const int32_t id : checkpoint::synthetic_token_map(config_)) {
      text += fmt::format("{}{}", separator, id);
      separator = ",";
    }
    write_text(directory / "engram_token_map.json", text + "]\n");
  }

  const SynthOptions& options_;
  const ModelConfig& config_;
  std::vector<std::vector<ExpectedTensor>> shards_;
  std::vector<std::byte> buffer_;
  ThreadPool pool_{0};
  ProgressBar* progress_ = nullptr;
  int64_t total_bytes_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace

void synthesize_checkpoint(const SynthOptions& options) {
  const checkpoint::PresetOverrides overrides = {.layers = options.layers,
                                                 .experts = options.experts,
                                                 .vocab_size = options.vocab_size,
                                                 .engram_vocab_size = options.engram_vocab_size};
  const ModelConfig config = checkpoint::checked_preset(options.preset, overrides);
  if (options.directory.empty())
    fail(ErrorCode::kInvalidArgument, "the output directory is missing");
  try {
    std::filesystem::path target =
        std::filesystem::weakly_canonical(std::filesystem::absolute(options.directory));
    if (!target.has_filename()) target = target.parent_path();  // "out/"
    PendingDirectory directory(target);
    Synthesizer(options, config).write(directory.path());
    directory.commit();
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorCode::kIo, "{}: cannot write: {}", options.directory.string(),
         error.code().message());
  }
}

}  // namespace deepinfer
