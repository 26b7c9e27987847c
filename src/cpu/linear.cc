#include "cpu/linear.h"

#include <algorithm>

#include "base/error.h"

namespace deepinfer::cpu {
namespace {

/// Rows whose inputs are prepared at a time: bounds the scratch memory of long prefill chunks.
constexpr int64_t kMaxPreparedRows = 512;
/// Bytes of weights worth handing to another thread: some three microseconds of reading.
constexpr int64_t kGrainBytes = 32768;
/// Multiply-adds of many rows worth it.
constexpr int64_t kGrainProducts = int64_t{1} << 18;

/// One product of a group: where its tiles start among all, and its inputs.
struct Job {
  StoredWeight weight;
  PreparedRows x;
  TensorView y;
  int64_t first_tile;
};

int64_t tiles_of(const QuantView& weight) {
  return (weight.rows() + kTileOutputs - 1) / kTileOutputs;
}

/// How a group of products is computed.
struct Plan {
  bool few;     // rows are few: weights are decoded as they are read
  bool narrow;  // inputs in bf16
  int64_t rows;
  int64_t tiles;
  int64_t row_parts;  // ranges of rows that are tasks of their own
  int64_t part_rows;
};

Plan make_plan(const Context& context, std::span<const Product> products, int64_t rows) {
  Plan plan{.few = rows <= kMaxFewRows,
            .narrow = context.kernels.products.many_narrow != nullptr && rows > kMaxFewRows,
            .rows = rows,
            .tiles = 0,
            .row_parts = 1,
            .part_rows = rows};
  for (const Product& product : products) {
    plan.tiles += tiles_of(product.weight);
    plan.narrow = plan.narrow && product.weight.weight.dtype() != DType::kF32;
  }
  if (plan.few) return plan;
  // Few tiles for many threads: rows are shared out, too, though each part decodes the weights.
  constexpr int64_t kSmallestPart = 48;
  const int64_t wanted = (int64_t{2} * context.pool.num_threads() + plan.tiles - 1) / plan.tiles;
  plan.row_parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(rows / kSmallestPart, 1));
  plan.part_rows = (rows + plan.row_parts - 1) / plan.row_parts;
  return plan;
}

PreparedRows prepare(const Context& context, const Product& product, const Plan& plan,
                     int64_t first_row) {
  const ProductKernels& kernels = context.kernels.products;
  const int64_t k = product.weight.cols();
  const int64_t row_bytes = steps_of(k) * (plan.narrow ? kStep * 2 : kStep * 4);
  auto* data = context.workspace.shared().take<uint8_t>(plan.rows * row_bytes);
  const auto prepare_row = plan.narrow ? kernels.prepare_narrow : kernels.prepare_wide;
  const bool round = product.rounding == InputRounding::kFp8;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(k, 1));
  context.parallel_for(plan.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      prepare_row(product.x.row<const BFloat16>(first_row + b), k, round, data + b * row_bytes);
    }
  });
  return {.data = data, .row_bytes = row_bytes, .index = nullptr};
}

bool same_inputs(const Product& a, const Product& b) {
  return a.x.data() == b.x.data() && a.x.dim(1) == b.x.dim(1) && a.x.stride(0) == b.x.stride(0) &&
         a.rounding == b.rounding;
}

void run_tile(const Context& context, const Plan& plan, const Job& job, int64_t tile, int64_t part,
              int64_t first_row) {
  const ProductKernels& kernels = context.kernels.products;
  const int64_t first = tile * kTileOutputs;
  const int64_t count = std::min(kTileOutputs, job.y.dim(1) - first);
  const int64_t begin = part * plan.part_rows;
  const int64_t rows = std::min(plan.part_rows, plan.rows - begin);
  if (rows <= 0) return;
  PreparedRows x = job.x;
  x.data += begin * x.row_bytes;
  Arena& own = context.workspace.own(ThreadPool::thread_index());
  own.reset();
  auto* sums = own.take<float>(rows * kTileOutputs);
  if (plan.few) {
    kernels.few(job.weight, first, count, x, rows, sums, kTileOutputs);
  } else {
    auto* scratch = own.take<uint8_t>(kTileScratchBytes);
    const auto many = plan.narrow ? kernels.many_narrow : kernels.many_wide;
    many(job.weight, first, count, x, rows, scratch, sums, kTileOutputs);
  }
  const bool is_bf16 = job.y.dtype() == DType::kBF16;
  for (int64_t b = 0; b < rows; ++b) {
    const float* from = sums + b * kTileOutputs;
    if (is_bf16) {
      kernels.store_bf16(from, count, job.y.row<BFloat16>(first_row + begin + b) + first);
    } else {
      std::copy_n(from, count, job.y.row<float>(first_row + begin + b) + first);
    }
  }
}

void run_chunk(const Context& context, std::span<const Product> products, int64_t first_row,
               int64_t rows) {
  const Plan plan = make_plan(context, products, rows);
  auto* jobs = context.workspace.shared().take<Job>(static_cast<int64_t>(products.size()));
  int64_t tile = 0;
  int64_t bytes = 0;
  int64_t work = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const bool shared = i > 0 && same_inputs(products[i - 1], product);
    const PreparedRows x = shared ? jobs[i - 1].x : prepare(context, product, plan, first_row);
    new (&jobs[i]) Job{stored_weight(product.weight), x, product.y, tile};
    tile += tiles_of(product.weight);
    bytes += product.weight.rows() * jobs[i].weight.row_bytes;
    work += product.weight.rows() * product.weight.cols() * rows;
  }
  // Tasks as large as is worth a hand-over, on average over the group.
  const int64_t tasks = plan.tiles * plan.row_parts;
  const int64_t total = plan.few ? bytes : work;
  const int64_t grain =
      (plan.few ? kGrainBytes : kGrainProducts) * tasks / std::max<int64_t>(total, 1);
  const auto count = static_cast<int64_t>(products.size());
  context.parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t tile_index = task / plan.row_parts;
      int64_t i = count - 1;
      while (jobs[i].first_tile > tile_index) --i;
      run_tile(context, plan, jobs[i], tile_index - jobs[i].first_tile, task % plan.row_parts,
               first_row);
    }
  });
}

}  // namespace

StoredWeight stored_weight(const QuantView& weight) {
  StoredWeight stored{.kind = WeightKind::kF32,
                      .k = weight.cols(),
                      .values = static_cast<const uint8_t*>(weight.weight.data()),
                      .row_bytes = weight.weight.stride(0) * size_of(weight.weight.dtype()),
                      .scales = nullptr,
                      .scale_row_bytes = 0,
                      .scale_rows = 1};
  switch (weight.weight.dtype()) {
    case DType::kF32:
      return stored;
    case DType::kBF16:
      stored.kind = WeightKind::kBF16;
      return stored;
    case DType::kE4M3:
      stored.kind = WeightKind::kFp8;
      break;
    default:
      DEEPINFER_CHECK(weight.weight.dtype() == DType::kE2M1x2, "weight of {}",
                      to_string(weight.weight.dtype()));
      stored.kind = WeightKind::kFp4;
  }
  stored.scales = weight.scale.as<const uint8_t>();
  stored.scale_row_bytes = weight.scale.stride(0);
  stored.scale_rows = weight.scale_rows;
  return stored;
}

void linear(const Context& context, std::span<const Product> products) {
  const int64_t rows = products.front().y.dim(0);
  for (const Product& p : products) {
    DEEPINFER_CHECK(p.x.dtype() == DType::kBF16 && p.x.dim(0) == rows && p.y.dim(0) == rows &&
                        p.x.dim(1) == p.weight.cols() && p.y.dim(1) == p.weight.rows(),
                    "product of x {}, weight [{}, {}], y {}", p.x.shape().to_string(),
                    p.weight.rows(), p.weight.cols(), p.y.shape().to_string());
    DEEPINFER_CHECK(p.rounding == InputRounding::kNone || p.weight.cols() % kStep == 0,
                    "FP8 rounding of {} inputs", p.weight.cols());
  }
  Arena& shared = context.workspace.shared();
  for (int64_t first = 0; first < rows; first += kMaxPreparedRows) {
    const Arena::Mark mark = shared.mark();
    run_chunk(context, products, first, std::min(kMaxPreparedRows, rows - first));
    shared.release(mark);
  }
}

}  // namespace deepinfer::cpu
