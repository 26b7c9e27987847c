#include "checkpoint/synthetic.h"

#include <sys/mman.h>

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/random_weights.h"

namespace deepinfer::checkpoint {
namespace {

/// Tensors begin at pages, so that one can be given back without its neighbours.
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kMaxExperts = 1 << 17;  // in all layers; the release has 15,744

int64_t page_aligned(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

int64_t parse_count(std::string_view spec, std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is \"{}\", expected a whole number", spec, key, text);
  }
  return value;
}

}  // namespace

ModelConfig checked_preset(std::string_view preset, const PresetOverrides& overrides) {
  ModelConfig config = preset_config(preset, overrides);
  for (const CheckResult& check : check_config(config)) {
    DEEPINFER_CHECK(check.outcome != CheckOutcome::kFail, "preset {}: {}: {}", preset, check.name,
                    check.detail);
  }
  if (config.num_layers * config.num_experts > kMaxExperts) {
    fail(ErrorCode::kInvalidArgument, "{} layers of {} experts, expected at most {} experts in all",
         config.num_layers, config.num_experts, kMaxExperts);
  }
  return config;
}

ModelConfig synthetic_config(std::string_view spec) {
  std::string_view rest = spec.substr(kSyntheticPrefix.size());
  const auto next = [&rest] {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return part;
  };
  const std::string_view preset = next();
  PresetOverrides overrides;
  while (!rest.empty()) {
    const std::string_view part = next();
    const size_t equal = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equal);
    const std::string_view value = part.substr(std::min(equal + 1, part.size()));
    if (key == "layers") {
      overrides.layers = parse_count(spec, key, value);
    } else if (key == "experts") {
      overrides.experts = parse_count(spec, key, value);
    } else if (key == "engram" && value == "small") {
      overrides.engram_vocab_size = preset_config("flash-slice", {}).engram_vocab_size;
    } else {
      fail(ErrorCode::kInvalidArgument,
           "{}: \"{}\" is unknown, expected layers=N, experts=N or engram=small", spec, part);
    }
  }
  return checked_preset(preset, overrides);
}

SyntheticTensors::SyntheticTensors(const ModelConfig& config) {
  int64_t bytes = 0;
  for_each_tensor(config, [&bytes](const ExpectedTensor& tensor) {
    bytes += page_aligned(tensor.num_bytes());
  });
  size_ = static_cast<size_t>(std::max(bytes, kPageBytes));
  // Address space only: pages come with the first write.
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::kResourceExhausted, "no address space for {} bytes of random weights", bytes);
  }
  memory_ = static_cast<std::byte*>(memory);
  std::byte* next = memory_;
  for_each_tensor(config, [&](const ExpectedTensor& tensor) {
    entries_.emplace(tensor.name, Entry{.tensor = tensor, .data = next});
    next += page_aligned(tensor.num_bytes());
  });
}

SyntheticTensors::~SyntheticTensors() {
  ::munmap(memory_, size_);
}

std::map<std::string, TensorView, std::less<>> SyntheticTensors::views() const {
  std::map<std::string, TensorView, std::less<>> views;
  for (const auto& [name, entry] : entries_) {
    views.emplace(name, TensorView(entry.data, entry.tensor.dtype, entry.tensor.shape));
  }
  return views;
}

void SyntheticTensors::make(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.find(name)->second;
  if (entry.made) return;
  const RandomWeights weights(0, entry.tensor);
  const int64_t bytes = entry.tensor.num_bytes();
  constexpr int64_t kGrain = int64_t{64} << 10;
  pool_.parallel_for((bytes + kGrain - 1) / kGrain, 1, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kGrain;
    const int64_t end = std::min(last * kGrain, bytes);
    weights.fill(begin, {entry.data + begin, static_cast<size_t>(end - begin)});
  });
  entry.made = true;
}

void SyntheticTensors::release(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.find(name)->second;
  ::madvise(entry.data, static_cast<size_t>(page_aligned(entry.tensor.num_bytes())), MADV_DONTNEED);
  entry.made = false;
}

std::vector<int32_t> synthetic_token_map(const ModelConfig& config) {
  std::vector<int32_t> map(static_cast<size_t>(config.vocab_size));
  for (size_t id = 0; id < map.size(); ++id) {
    map[id] = static_cast<int32_t>(static_cast<int64_t>(id) % config.engram_compressed_vocab_size);
  }
  return map;
}

std::shared_ptr<const Checkpoint> Checkpoint::synthetic(std::string_view spec) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->directory_ = spec;
  checkpoint->config_ = synthetic_config(spec);
  const ModelConfig& config = checkpoint->config_;
  checkpoint->synthetic_ = std::make_unique<SyntheticTensors>(config);
  checkpoint->tensors_ = checkpoint->synthetic_->views();
  const std::string description = to_json(config);
  checkpoint->fingerprint_ = hash64(std::as_bytes(std::span(description)));
  if (!config.engram_layers.empty()) {
    checkpoint->engram_token_map_ = synthetic_token_map(config);
  }
  return checkpoint;
}

}  // namespace deepinfer::checkpoint
