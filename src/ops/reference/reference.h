#pragma once

#include "ops/backend.h"
#include "ops/reference/common.h"

/// The reference's operations, one source file per header of ops/: what the ReferenceBackend calls
/// after check().
namespace deepinfer::ops::reference {

void embed(const Context& context, const EmbedParams& params);
void engram(const Context& context, const EngramParams& params);
void site_begin(const Context& context, const SiteBeginParams& params);
void qkv(const Context& context, const QkvParams& params);
void compress(const Context& context, const CompressParams& params);
void index_select(const Context& context, const IndexSelectParams& params);
void sparse_attention(const Context& context, const SparseAttentionParams& params);
void window_store(const Context& context, const WindowStoreParams& params);
void output_projection(const Context& context, const OutputProjectionParams& params);
void site_end(const Context& context, const SiteEndParams& params);
void route(const Context& context, const RouteParams& params);
void experts(const Context& context, const ExpertsParams& params);
void combine(const Context& context, const CombineParams& params);
void tap(const Context& context, const TapParams& params);
void logits(const Context& context, const LogitsParams& params);
void sample(const Context& context, const SampleParams& params);

}  // namespace deepinfer::ops::reference
