#include <algorithm>
#include <new>
#include <numeric>

#include "base/error.h"
#include "cpu/linear.h"
#include "cpu/operations.h"

// Rows are grouped by expert: each expert's weights are read once per step, whatever the number of
// rows that chose it. Two parallel loops over (expert, tile of outputs): w1 and w3 with everything
// up to the rounded input of w2, then w2.
namespace deepinfer::cpu {
namespace {

/// Rows that are computed at a time: bounds the scratch memory of long prefill chunks.
constexpr int64_t kMaxRows = 512;
/// Bytes of weights worth handing to another thread.
constexpr int64_t kGrainBytes = 32768;

/// One network with the rows that it runs.
struct Job {
  StoredWeight w1, w3, w2;
  int64_t width;  // f
  int64_t rows;
  const int32_t* row;       // [rows] row of the chunk
  const float* weight;      // [rows] routing weight
  BFloat16* const* out;     // [rows] where the result goes
  bool narrow;              // inputs in bf16
  uint8_t* h;               // [rows] prepared inputs of w2
  int64_t first_wide_tile;  // of w1 and w3, among all jobs'
};

/// The inputs of w1 and w3, in the forms that the jobs need.
struct Inputs {
  PreparedRows wide, narrow;
};

/// What a chunk of rows computes.
struct Chunk {
  const Context& context;
  const ops::ExpertsParams& params;
  int64_t first_row;
  int64_t rows;
  int64_t d;
  Job* jobs = nullptr;
  int64_t num_jobs = 0;
  Inputs inputs{};

  int64_t step_bytes(bool narrow) const { return narrow ? kStep * 2 : kStep * 4; }
  int64_t h_row_bytes(const Job& job) const { return job.width / kStep * step_bytes(job.narrow); }
};

bool exact_in_bf16(const ops::ExpertWeights& weights) {
  return weights.w1.weight.dtype() != DType::kF32 && weights.w3.weight.dtype() != DType::kF32 &&
         weights.w2.weight.dtype() != DType::kF32;
}

void add_job(Chunk& chunk, const ops::ExpertWeights& weights, int64_t rows, const int32_t* row,
             const float* weight, BFloat16* const* out) {
  const int64_t width = weights.w1.rows();
  DEEPINFER_CHECK(width % kStep == 0 && chunk.d % kStep == 0,
                  "experts: a network of [{}, {}], expected multiples of {}", width, chunk.d,
                  kStep);
  Job* job = new (&chunk.jobs[chunk.num_jobs])
      Job{.w1 = stored_weight(weights.w1),
          .w3 = stored_weight(weights.w3),
          .w2 = stored_weight(weights.w2),
          .width = width,
          .rows = rows,
          .row = row,
          .weight = weight,
          .out = out,
          .narrow = chunk.context.kernels.products.many_narrow != nullptr && rows > kMaxFewRows &&
                    exact_in_bf16(weights),
          .h = nullptr,
          .first_wide_tile = 0};
  if (chunk.num_jobs > 0) {
    const Job& last = chunk.jobs[chunk.num_jobs - 1];
    job->first_wide_tile = last.first_wide_tile + last.width / kTileOutputs;
  }
  job->h = chunk.context.workspace.shared().take<uint8_t>(rows * chunk.h_row_bytes(*job));
  ++chunk.num_jobs;
}

/// The jobs of a chunk: the shared network, which has most rows, then every chosen expert.
void make_jobs(Chunk& chunk) {
  const ops::ExpertsParams& p = chunk.params;
  const int64_t choices = p.experts.dim(1);
  const auto num_experts = static_cast<int64_t>(p.routed.size());
  const int64_t slots = chunk.rows * choices;
  Arena& arena = chunk.context.workspace.shared();
  chunk.jobs = arena.take<Job>(std::min(slots, num_experts) + 1);
  // Slots sorted by expert: rows, weights and destinations side by side.
  auto* begin = arena.take<int64_t>(num_experts + 1);
  auto* row = arena.take<int32_t>(slots + chunk.rows);
  auto* weight = arena.take<float>(slots + chunk.rows);
  auto* out = arena.take<BFloat16*>(slots + chunk.rows);

  std::fill_n(begin, num_experts + 1, int64_t{0});
  for (int64_t b = 0; b < chunk.rows; ++b) {
    const auto* ids = p.experts.row<const int32_t>(chunk.first_row + b);
    for (int64_t i = 0; i < choices; ++i) {
      DEEPINFER_CHECK(ids[i] >= 0 && ids[i] < num_experts, "experts: expert {} of {}", ids[i],
                      num_experts);
      ++begin[ids[i] + 1];
    }
  }
  std::partial_sum(begin, begin + num_experts + 1, begin);
  auto* next = arena.take<int64_t>(num_experts);
  std::copy_n(begin, num_experts, next);
  for (int64_t b = 0; b < chunk.rows; ++b) {
    const int64_t step_row = chunk.first_row + b;
    const auto* ids = p.experts.row<const int32_t>(step_row);
    for (int64_t i = 0; i < choices; ++i) {
      const int64_t at = next[ids[i]]++;
      row[at] = static_cast<int32_t>(b);
      weight[at] = p.weights.row<const float>(step_row)[i];
      out[at] = p.slot_rows.row<BFloat16>(step_row) + i * chunk.d;
    }
    row[slots + b] = static_cast<int32_t>(b);
    weight[slots + b] = 1;
    out[slots + b] = p.shared_rows.row<BFloat16>(step_row);
  }

  add_job(chunk, p.shared, chunk.rows, row + slots, weight + slots, out + slots);
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t first = begin[e];
    if (begin[e + 1] == first) continue;
    add_job(chunk, p.routed[static_cast<size_t>(e)], begin[e + 1] - first, row + first,
            weight + first, out + first);
  }
}

PreparedRows prepare(const Chunk& chunk, bool narrow) {
  const ProductKernels& kernels = chunk.context.kernels.products;
  const int64_t row_bytes = chunk.d / kStep * chunk.step_bytes(narrow);
  auto* data = chunk.context.workspace.shared().take<uint8_t>(chunk.rows * row_bytes);
  const auto prepare_row = narrow ? kernels.prepare_narrow : kernels.prepare_wide;
  chunk.context.parallel_for(
      chunk.rows, std::max<int64_t>(1, 16384 / chunk.d), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          prepare_row(chunk.params.x.row<const BFloat16>(chunk.first_row + b), chunk.d, true,
                      data + b * row_bytes);
        }
      });
  return {.data = data, .row_bytes = row_bytes, .index = nullptr};
}

/// One tile of a product for all rows of a job: sums [rows, kTileOutputs].
void multiply(const Context& context, const Job& job, const StoredWeight& weight, int64_t first,
              int64_t count, const PreparedRows& x, uint8_t* scratch, float* sums) {
  const ProductKernels& kernels = context.kernels.products;
  if (job.rows <= kMaxFewRows) {
    return kernels.few(weight, first, count, x, job.rows, sums, kTileOutputs);
  }
  const auto many = job.narrow ? kernels.many_narrow : kernels.many_wide;
  many(weight, first, count, x, job.rows, scratch, sums, kTileOutputs);
}

/// 32 channels of h: w1, w3, activation, routing weight, bf16, FP8 rounding — one step of w2's
/// prepared inputs.
void run_hidden_tile(const Chunk& chunk, const Job& job, int64_t tile) {
  const Kernels& kernels = chunk.context.kernels;
  Arena& own = chunk.context.workspace.own(ThreadPool::thread_index());
  own.reset();
  auto* a = own.take<float>(job.rows * kTileOutputs);
  auto* b = own.take<float>(job.rows * kTileOutputs);
  auto* scratch = own.take<uint8_t>(job.rows > kMaxFewRows ? kTileScratchBytes : 0);
  PreparedRows x = job.narrow ? chunk.inputs.narrow : chunk.inputs.wide;
  x.index = job.row;
  const int64_t first = tile * kTileOutputs;
  multiply(chunk.context, job, job.w1, first, kTileOutputs, x, scratch, a);
  multiply(chunk.context, job, job.w3, first, kTileOutputs, x, scratch, b);
  const auto prepare_row =
      job.narrow ? kernels.products.prepare_narrow : kernels.products.prepare_wide;
  const int64_t step_bytes = chunk.step_bytes(job.narrow);
  for (int64_t r = 0; r < job.rows; ++r) {
    BFloat16 h[kTileOutputs];
    kernels.experts.swiglu(a + r * kTileOutputs, b + r * kTileOutputs, kTileOutputs, job.weight[r],
                           chunk.params.limit, h);
    prepare_row(h, kTileOutputs, true, job.h + r * chunk.h_row_bytes(job) + tile * step_bytes);
  }
}

void run_output_tile(const Chunk& chunk, const Job& job, int64_t tile) {
  Arena& own = chunk.context.workspace.own(ThreadPool::thread_index());
  own.reset();
  auto* sums = own.take<float>(job.rows * kTileOutputs);
  auto* scratch = own.take<uint8_t>(job.rows > kMaxFewRows ? kTileScratchBytes : 0);
  const PreparedRows h{.data = job.h, .row_bytes = chunk.h_row_bytes(job), .index = nullptr};
  const int64_t first = tile * kTileOutputs;
  multiply(chunk.context, job, job.w2, first, kTileOutputs, h, scratch, sums);
  for (int64_t r = 0; r < job.rows; ++r) {
    chunk.context.kernels.products.store_bf16(sums + r * kTileOutputs, kTileOutputs,
                                              job.out[r] + first);
  }
}

/// Tasks as large as is worth a hand-over: `tile_bytes` of weights each.
int64_t grain_of(int64_t tile_bytes) {
  return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(tile_bytes, 1));
}

void run_chunk(Chunk& chunk) {
  make_jobs(chunk);
  bool needs_wide = false;
  bool needs_narrow = false;
  for (int64_t j = 0; j < chunk.num_jobs; ++j) {
    (chunk.jobs[j].narrow ? needs_narrow : needs_wide) = true;
  }
  if (needs_wide) chunk.inputs.wide = prepare(chunk, false);
  if (needs_narrow) chunk.inputs.narrow = prepare(chunk, true);

  const Job* jobs = chunk.jobs;
  const Job& last = jobs[chunk.num_jobs - 1];
  const int64_t hidden_tiles = last.first_wide_tile + last.width / kTileOutputs;
  chunk.context.parallel_for(hidden_tiles, grain_of(2 * kTileOutputs * last.w1.row_bytes),
                             [&](int64_t begin, int64_t end) {
                               const Job* job = std::upper_bound(jobs, jobs + chunk.num_jobs, begin,
                                                                 [](int64_t tile, const Job& j) {
                                                                   return tile < j.first_wide_tile;
                                                                 });
                               --job;
                               for (int64_t tile = begin; tile < end; ++tile) {
                                 if (tile - job->first_wide_tile == job->width / kTileOutputs)
                                   ++job;
                                 run_hidden_tile(chunk, *job, tile - job->first_wide_tile);
                               }
                             });
  const int64_t tiles = chunk.d / kTileOutputs;
  chunk.context.parallel_for(chunk.num_jobs * tiles, grain_of(kTileOutputs * last.w2.row_bytes),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t task = begin; task < end; ++task) {
                                 run_output_tile(chunk, jobs[task / tiles], task % tiles);
                               }
                             });
}

}  // namespace

void experts(const Context& context, const ops::ExpertsParams& p) {
  const int64_t rows = p.x.dim(0);
  Arena& arena = context.workspace.shared();
  for (int64_t first = 0; first < rows; first += kMaxRows) {
    const Arena::Mark mark = arena.mark();
    Chunk chunk{.context = context,
                .params = p,
                .first_row = first,
                .rows = std::min(kMaxRows, rows - first),
                .d = p.x.dim(1)};
    run_chunk(chunk);
    arena.release(mark);
  }
}

}  // namespace deepinfer::cpu
