#include "cuda/device/rows.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

/// One thread per row: everything is a function of the plan and of the slots' state, so no row
/// waits for another.
struct ResolveArgs {
  const ops::PlanRow* plan;  // [B]
  int32_t num_rows;
  const int32_t* span_begin;  // [B]
  const int32_t* span_size;   // [B]
  const int32_t* span_rows;   // [B]
  const int64_t* committed;   // [S]
  const int32_t* last_token;  // [S]
  const int32_t* drafts;      // [S, G]; may be null
  int64_t drafts_stride;
  const int32_t* history;  // [S, look_back]
  int64_t history_stride;
  int32_t look_back;
  int32_t* token;  // out, as ops::RowBatch
  int64_t* position;
  int32_t* slot;
  uint8_t* role;
  int32_t* out_span_begin;
  int32_t* out_span_size;
  int64_t* span_first;
  int32_t* out_span_rows;
  int32_t* context;  // [B, depth]
  int64_t context_stride;
  int32_t depth;
};

__device__ int32_t token_of(const ResolveArgs& a, const ops::PlanRow& row) {
  if (row.role == ops::RowRole::kPrefill || row.role == ops::RowRole::kReplay) return row.token;
  if (row.role == ops::RowRole::kVerify && row.offset > 0) {
    return a.drafts[row.slot * a.drafts_stride + row.offset - 1];
  }
  return a.last_token[row.slot];
}

__global__ void resolve_rows_kernel(const ResolveArgs a) {
  const int32_t b = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (b >= a.num_rows) return;
  const ops::PlanRow row = a.plan[b];
  const int64_t committed = a.committed[row.slot];
  const int64_t position = committed + row.offset;
  const int32_t begin = a.span_begin[b];
  const int32_t size = a.span_size[b];
  const int32_t first_offset = a.plan[a.span_rows[begin]].offset;
  a.token[b] = token_of(a, row);
  a.position[b] = position;
  a.slot[b] = row.slot;
  a.role[b] = static_cast<uint8_t>(row.role);
  a.out_span_begin[b] = begin;
  a.out_span_size[b] = size;
  a.span_first[b] = committed + first_offset;
  a.out_span_rows[b] = a.span_rows[b];

  for (int32_t i = 0; i < a.depth; ++i) {
    int32_t token = -1;
    const int32_t place = row.offset - first_offset - i;  // in the slot's span
    const int64_t back = i - int64_t{row.offset} - 1;     // in the slot's history
    if (position - i < 0) {
      // before the start of the sequence
    } else if (place >= 0 && place < size) {
      token = token_of(a, a.plan[a.span_rows[begin + place]]);
    } else if (back >= 0 && back < a.look_back) {
      token = a.history[row.slot * a.history_stride + back];
    }
    a.context[b * a.context_stride + i] = token;
  }
}

}  // namespace

void resolve_rows(const ops::ResolveRowsParams& p, Context& context) {
  const auto rows = static_cast<int32_t>(p.plan.size());
  if (rows == 0) return;
  const auto upload = [&](auto span) { return context.staging->upload(span, context.stream); };
  const bool has_drafts = !p.slots.drafts.empty();
  const ResolveArgs args{.plan = upload(p.plan),
                         .num_rows = rows,
                         .span_begin = upload(p.span_begin),
                         .span_size = upload(p.span_size),
                         .span_rows = upload(p.span_rows),
                         .committed = p.slots.committed.as<const int64_t>(),
                         .last_token = p.slots.last_token.as<const int32_t>(),
                         .drafts = has_drafts ? p.slots.drafts.as<const int32_t>() : nullptr,
                         .drafts_stride = has_drafts ? p.slots.drafts.stride(0) : 0,
                         .history = p.slots.history.as<const int32_t>(),
                         .history_stride = p.slots.history.stride(0),
                         .look_back = static_cast<int32_t>(p.slots.history.dim(1)),
                         .token = p.out.token.as<int32_t>(),
                         .position = p.out.position.as<int64_t>(),
                         .slot = p.out.slot.as<int32_t>(),
                         .role = p.out.role.as<uint8_t>(),
                         .out_span_begin = p.out.span_begin.as<int32_t>(),
                         .out_span_size = p.out.span_size.as<int32_t>(),
                         .span_first = p.out.span_first.as<int64_t>(),
                         .out_span_rows = p.out.span_rows.as<int32_t>(),
                         .context = p.out.context.as<int32_t>(),
                         .context_stride = p.out.context.stride(0),
                         .depth = static_cast<int32_t>(p.out.context.dim(1))};
  resolve_rows_kernel<<<(rows + kThreads - 1) / kThreads, kThreads, 0, context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("resolve_rows");
}

}  // namespace deepinfer::cuda
