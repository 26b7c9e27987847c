#pragma once

#include "cpu/context.h"
#include "cpu/rows.h"
#include "ops/backend.h"

/// The backend's operations: what CpuBackend calls after check(), on the engine thread, with
/// subnormals flushed. One source file per header of ops/, or per operation of it. resolve_rows and
/// commit are those of ops/host_rows.h.
namespace deepinfer::cpu {

void embed(const Context& context, const ops::EmbedParams& params);
void engram(const Context& context, const ops::EngramParams& params);
void site_begin(const Context& context, const ops::SiteBeginParams& params);
void qkv(const Context& context, const ops::QkvParams& params);
void compress(const Context& context, const ops::CompressParams& params);
void index_select(const Context& context, const ops::IndexSelectParams& params);
void sparse_attention(const Context& context, const ops::SparseAttentionParams& params);
void window_store(const Context& context, const ops::WindowStoreParams& params);
void output_projection(const Context& context, const ops::OutputProjectionParams& params);
void site_end(const Context& context, const ops::SiteEndParams& params);
void route(const Context& context, const ops::RouteParams& params);
void experts(const Context& context, const ops::ExpertsParams& params);
void combine(const Context& context, const ops::CombineParams& params);
void tap(const Context& context, const ops::TapParams& params);
void logits(const Context& context, const ops::LogitsParams& params);
void sample(const Context& context, const ops::SampleParams& params);

}  // namespace deepinfer::cpu
