#pragma once

#include "cpu/context.h"
#include "cpu/rows.h"
#include "ops/backend.h"

/// The backend's operations: what CpuBackend calls after check(), on the engine thread, with
/// subnormals flushed. One source file per header of ops/, or per operation of it.
namespace deepinfer::cpu {

void embed(const Context& context, const ops::EmbedParams& params);
void engram(const Context& context, const ops::EngramParams& params);
void qkv(const Context& context, const ops::QkvParams& params);
void output_projection(const Context& context, const ops::OutputProjectionParams& params);
void route(const Context& context, const ops::RouteParams& params);
void experts(const Context& context, const ops::ExpertsParams& params);
void combine(const Context& context, const ops::CombineParams& params);
void logits(const Context& context, const ops::LogitsParams& params);

}  // namespace deepinfer::cpu
