#include "cuda/pointer_tables.h"

#include <cstring>

#include "cuda/error.h"

namespace deepinfer::cuda {
namespace {

const uint8_t* address(const TensorView& view) {
  return view.empty() ? nullptr : static_cast<const uint8_t*>(view.data());
}

}  // namespace

const ExpertPointers* PointerTables::table(std::span<const ops::ExpertWeights> experts,
                                           cudaStream_t stream) {
  std::vector<ExpertPointers> now;
  now.reserve(experts.size());
  for (const ops::ExpertWeights& expert : experts) {
    now.push_back({.w1 = address(expert.w1.weight),
                   .w1_scale = address(expert.w1.scale),
                   .w3 = address(expert.w3.weight),
                   .w3_scale = address(expert.w3.scale),
                   .w2 = address(expert.w2.weight),
                   .w2_scale = address(expert.w2.scale)});
  }
  Entry& entry = entries_[experts.data()];
  const size_t bytes = now.size() * sizeof(ExpertPointers);
  const bool same =
      entry.host.size() == now.size() && std::memcmp(entry.host.data(), now.data(), bytes) == 0;
  if (same) return entry.device;
  if (entry.host.size() < now.size()) {
    entry.device = reinterpret_cast<ExpertPointers*>(arena_.take(static_cast<int64_t>(bytes)));
  }
  entry.host = std::move(now);
  DEEPINFER_CUDA(
      cudaMemcpyAsync(entry.device, entry.host.data(), bytes, cudaMemcpyHostToDevice, stream));
  return entry.device;
}

}  // namespace deepinfer::cuda
