#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "tensor/tensor.h"

namespace deepinfer::checkpoint {

/// What a tensor is part of: the rows of the memory plan.
enum class TensorKind : uint8_t {
  kEmbeddings,       // embed, head and the final norm
  kAttention,        // projections, indexer, compressor
  kNormsAndStreams,  // attn_norm, ffn_norm, hc_*
  kRouters,
  kRoutedExperts,
  kSharedExperts,
  kEngramTables,  // mapped, gathered by row
  kEngram,        // the rest of Engram
  kDraftExperts,
  kDraft,
  kVision,
};
inline constexpr size_t kNumTensorKinds = 11;
std::string_view to_string(TensorKind kind);

/// A tensor that a checkpoint of some configuration must contain, in its canonical name.
struct ExpectedTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // as stored: [out, in/2] for kE2M1x2
  TensorKind kind = TensorKind::kEmbeddings;
  int shard = 0;  // 0-based file that the released layout puts it in (spec/checkpoint.md §2.1)

  int64_t num_bytes() const { return shape.num_elements() * size_of(dtype); }
};

/// Calls `visit` for every tensor of the name table of spec/checkpoint.md §2.4, shards ascending.
/// Draft tensors exist if the configuration has draft stages; vision tensors and delimiters if it
/// has a vision tower.
void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ExpectedTensor&)>& visit);

/// Files in the released layout: vision, embedding, one per layer, head, one per draft stage, one
/// per Engram layer.
int num_shards(const ModelConfig& config);

/// The canonical spelling of a tensor name: drops the prefix "model.", and folds the names of older
/// exports (self_attn, mlp, weight_scale_inv, e_score_correction_bias, lm_head, embed_tokens;
/// spec/checkpoint.md §2.2).
std::string canonical_name(std::string_view name);

}  // namespace deepinfer::checkpoint
