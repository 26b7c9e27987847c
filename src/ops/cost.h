#pragma once

#include "ops/backend.h"

namespace deepinfer::ops {

/// The least that an operation must do, whatever computes it: what its time is compared with.
struct Cost {
  /// Bytes that must cross memory once: weights as stored with their scales, activations read and
  /// written, cache rows. What several rows share (weights, chosen experts, keys of one slot)
  /// counts once.
  double bytes = 0;
  /// Two per multiply-add of products, attention and index scores; work per element does not count.
  double operations = 0;
};

/// Costs that depend on data (chosen experts, visible and selected entries) are read from the
/// operands, which must be in host memory. Outputs must have been written: call it after the
/// operation. Shapes must have been checked.
Cost cost_of(const ResolveRowsParams& params);
Cost cost_of(const EmbedParams& params);
Cost cost_of(const EngramParams& params);
Cost cost_of(const SiteBeginParams& params);
Cost cost_of(const QkvParams& params);
Cost cost_of(const CompressParams& params);
Cost cost_of(const IndexSelectParams& params);
Cost cost_of(const SparseAttentionParams& params);
Cost cost_of(const WindowStoreParams& params);
Cost cost_of(const OutputProjectionParams& params);
Cost cost_of(const SiteEndParams& params);
Cost cost_of(const RouteParams& params);
Cost cost_of(const ExpertsParams& params);
Cost cost_of(const CombineParams& params);
Cost cost_of(const TapParams& params);
Cost cost_of(const LogitsParams& params);
Cost cost_of(const SampleParams& params);
Cost cost_of(const CommitParams& params);

}  // namespace deepinfer::ops
