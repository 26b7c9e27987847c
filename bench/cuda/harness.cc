#include "bench/cuda/harness.h"

#include <fmt/format.h>

#include <utility>

#include "bench/cuda/kernels.h"
#include "checkpoint/presets.h"
#include "cuda/error.h"
#include "ops/rope_table.h"

namespace deepinfer::bench {
namespace {

/// 6.3 million rows of 264 bytes per table instead of 384 million.
constexpr int64_t kEngramRowsPerColumn = int64_t{1} << 18;
constexpr Device kDevice{DeviceKind::kCuda, 0};

}  // namespace

Harness::Harness(Options options)
    : options_(std::move(options)),
      config_(checkpoint::preset_config("flash", {.engram_vocab_size = kEngramRowsPerColumn})) {
  context_ = {.stream = stream_.get(),
              .workspace = &workspace_,
              .staging = &staging_,
              .tables = &tables_,
              .fault = static_cast<cuda::Fault*>(
                  pinned_bits(DType::kI64, {1}, 0, 0xFFFFFFFF).data()),  // none
              .counters = zeros(DType::kI32, {cuda::kNumCounters}).as<int32_t>(),
              .family = cuda::family_of(device_),
              .num_multiprocessors = device_.num_multiprocessors};
  library_ = MatrixLibrary::open();
  Limits limits = measure_limits();
  limits.card = device_.name;
  limits.driver = cuda::list_devices().driver;
  table_.emplace(std::move(limits));
}

Harness::~Harness() {
  cudaStreamSynchronize(stream_.get());
  for (void* memory : pinned_) cudaFreeHost(memory);
}

TensorView Harness::zeros(DType dtype, const Shape& shape) {
  const TensorView view(arena_.take(shape.num_elements() * size_of(dtype)), dtype, shape, kDevice);
  DEEPINFER_CUDA(
      cudaMemsetAsync(view.data(), 0, static_cast<size_t>(view.num_bytes()), stream_.get()));
  return view;
}

TensorView Harness::random_bits(DType dtype, const Shape& shape, uint32_t mask, uint32_t base) {
  // The arena rounds up to whole words.
  const TensorView view(arena_.take(shape.num_elements() * size_of(dtype)), dtype, shape, kDevice);
  fill_bits(view.data(), view.num_bytes(), mask, base, ++seed_, stream_.get());
  return view;
}

TensorView Harness::random(DType dtype, const Shape& shape) {
  return dtype == DType::kF32 ? random_bits(dtype, shape, 0x81FFFFFF, 0x3E000000)
                              : random_bits(dtype, shape, 0x81FF81FF, 0x3E003E00);
}

TensorView Harness::normal(const Shape& shape, float deviation) {
  const TensorView view(arena_.take(shape.num_elements() * 4), DType::kF32, shape, kDevice);
  fill_normal(view.as<float>(), shape.num_elements(), deviation, ++seed_, stream_.get());
  return view;
}

QuantView Harness::random_weight(DType dtype, int64_t outputs, int64_t columns) {
  if (dtype == DType::kBF16) return {random(dtype, {outputs, columns}), {}, 1};
  const bool is_fp4 = dtype == DType::kE2M1x2;
  const int64_t scale_rows = is_fp4 ? 1 : 32;
  // FP8 codes below 2, so none is NaN; scales from 2^-11 to 2^-8.
  return {is_fp4 ? random_bits(dtype, {outputs, columns / 2}, 0xFFFFFFFF, 0)
                 : random_bits(dtype, {outputs, columns}, 0xBFBFBFBF, 0),
          random_bits(DType::kE8M0, {(outputs + scale_rows - 1) / scale_rows, columns / 32},
                      0x03030303, 0x74747474),
          scale_rows};
}

std::vector<QuantView> Harness::random_weights(DType dtype, int64_t outputs, int64_t columns) {
  std::vector<QuantView> weights = {random_weight(dtype, outputs, columns)};
  const int64_t count = num_sets(bytes_of(weights.front()));
  while (std::ssize(weights) < count) weights.push_back(random_weight(dtype, outputs, columns));
  return weights;
}

TensorView Harness::upload(const TensorView& host) {
  const TensorView view(arena_.take(host.num_bytes()), host.dtype(), host.shape(), kDevice);
  DEEPINFER_CUDA(cudaMemcpyAsync(view.data(), host.data(), static_cast<size_t>(host.num_bytes()),
                                 cudaMemcpyHostToDevice, stream_.get()));
  stream_.synchronize();
  return view;
}

TensorView Harness::pinned_bits(DType dtype, const Shape& shape, uint32_t mask, uint32_t base) {
  const int64_t bytes = (shape.num_elements() * size_of(dtype) + 3) / 4 * 4;
  void* memory = nullptr;
  DEEPINFER_CUDA(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocMapped));
  pinned_.push_back(memory);
  fill_bits(memory, bytes, mask, base, ++seed_, stream_.get());
  return {memory, dtype, shape, kDevice};
}

ops::Rope Harness::rope() {
  std::vector<float> inv_freq = ops::rope_inv_freq(config_.rope_head_dim, config_.rope_theta);
  return {upload({inv_freq.data(), DType::kF32, {std::ssize(inv_freq)}})};
}

double Harness::time(int64_t sets, const std::function<void(int64_t)>& body) {
  constexpr double kMaxMs = 200;
  constexpr int kMinRepeats = 3;
  constexpr int kMaxRepeats = 15;
  constexpr int64_t kMinCalls = 4;  // the launch of a graph is no part of a call
  const int64_t calls = std::max(sets, kMinCalls);
  const auto run = [&] {
    for (int64_t call = 0; call < calls; ++call) body(call % sets);
  };
  run();  // loads kernels and fills tables, which a capture must not
  stream_.synchronize();
  staging_.free_until(staging_.position());  // a full ring would wait inside the capture
  const cuda::Graph graph = cuda::Graph::capture(stream_.get(), run);
  const cuda::Event start(true);
  const cuda::Event end(true);
  const auto replay = [&] {
    start.record(stream_.get());
    graph.launch(stream_.get());
    end.record(stream_.get());
    end.synchronize();
    return static_cast<double>(end.elapsed_ms(start));
  };
  replay();  // uploads the graph
  const double first = replay();
  const int repeats = std::clamp(static_cast<int>(kMaxMs / first), kMinRepeats, kMaxRepeats);
  std::vector<double> times;
  times.reserve(static_cast<size_t>(repeats));
  for (int i = 0; i < repeats; ++i) times.push_back(replay());
  std::ranges::sort(times);
  return times[times.size() / 2] * 1e3 / static_cast<double>(calls);
}

double Harness::library_us(std::initializer_list<LibraryProduct> products) {
  double sum = 0;
  for (const LibraryProduct& p : products) {
    if (!library_) return 0;
    const MemoryScope scope(*this);
    const int64_t weight_rows = p.batch * p.outputs;
    const TensorView x = random(DType::kBF16, {p.batch * p.rows, p.columns});
    const TensorView y = zeros(DType::kBF16, {p.batch * p.rows, p.outputs});
    const auto weights = random_weights(DType::kBF16, weight_rows, p.columns);
    bool is_done = true;
    sum += time(std::ssize(weights), [&](int64_t set) {
      const TensorView& w = in_turn(weights, set).weight;
      is_done = library_->multiply(p, w.data(), x.data(), y.data(), stream_.get()) && is_done;
    });
    if (!is_done) return 0;
  }
  return sum;
}

double Harness::copy_bytes_per_us(const TensorView& pinned) {
  const MemoryScope scope(*this);
  const TensorView to = zeros(pinned.dtype(), pinned.shape());
  const auto bytes = static_cast<size_t>(pinned.num_bytes());
  const double us = time(1, [&](int64_t) {
    DEEPINFER_CUDA(
        cudaMemcpyAsync(to.data(), pinned.data(), bytes, cudaMemcpyHostToDevice, stream_.get()));
  });
  return static_cast<double>(bytes) / us;
}

Limits Harness::measure_limits() {
  constexpr int64_t kReadBytes = int64_t{4} << 30;
  constexpr int64_t kPinnedBytes = int64_t{256} << 20;
  constexpr int64_t kN = 8192;
  constexpr double kUsualOperationsPerUs = 800e6;  // without cuBLASLt
  const MemoryScope scope(*this);
  Limits limits;
  const TensorView sink = zeros(DType::kI32, {1});
  const auto read_bytes_per_us = [&](const TensorView& data) {
    const double us = time(1, [&](int64_t) {
      read_once(data.data(), data.num_bytes(), sink.data(), context_.num_multiprocessors,
                stream_.get());
    });
    return static_cast<double>(data.num_bytes()) / us;
  };
  limits.read_bytes_per_us =
      read_bytes_per_us(random_bits(DType::kU8, {kReadBytes}, 0xFFFFFFFF, 0));
  const TensorView pinned = pinned_bits(DType::kU8, {kPinnedBytes}, 0xFFFFFFFF, 0);
  limits.pinned_bytes_per_us = std::max(read_bytes_per_us(pinned), copy_bytes_per_us(pinned));
  const double product_us = library_us({{.outputs = kN, .columns = kN, .rows = kN}});
  limits.operations_per_us =
      product_us > 0 ? 2.0 * kN * kN * kN / product_us : kUsualOperationsPerUs;
  if (product_us == 0) {
    fmt::print("no libcublasLt: bf16 peak taken as {:.0f} TFLOP/s\n", kUsualOperationsPerUs / 1e6);
  }
  limits.launch_us = time(100, [&](int64_t) { do_nothing(stream_.get()); });
  return limits;
}

void Harness::finish() const {
  table_->print_summary();
  if (!options_.json.empty()) table_->write_json(options_.json);
}

}  // namespace deepinfer::bench
