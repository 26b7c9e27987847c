#pragma once

#include "cuda/context.h"
#include "ops/backend.h"

/// The operations on the device: each puts its kernels into context.stream and returns. Params have
/// been checked by ops::check(). One file per operation: NAME.cu.
namespace deepinfer::cuda {

void resolve_rows(const ops::ResolveRowsParams& params, Context& context);
void embed(const ops::EmbedParams& params, Context& context);
void engram(const ops::EngramParams& params, Context& context);
void site_begin(const ops::SiteBeginParams& params, Context& context);
void qkv(const ops::QkvParams& params, Context& context);
void compress(const ops::CompressParams& params, Context& context);
void index_select(const ops::IndexSelectParams& params, Context& context);
void sparse_attention(const ops::SparseAttentionParams& params, Context& context);
void window_store(const ops::WindowStoreParams& params, Context& context);
void output_projection(const ops::OutputProjectionParams& params, Context& context);
void site_end(const ops::SiteEndParams& params, Context& context);
void route(const ops::RouteParams& params, Context& context);
void experts(const ops::ExpertsParams& params, Context& context);
void combine(const ops::CombineParams& params, Context& context);
void tap(const ops::TapParams& params, Context& context);
void logits(const ops::LogitsParams& params, Context& context);
void sample(const ops::SampleParams& params, Context& context);
void commit(const ops::CommitParams& params, Context& context);

}  // namespace deepinfer::cuda
