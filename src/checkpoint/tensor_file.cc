#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/safetensors_writer.h"
#include "deepinfer/safetensors.h"

namespace deepinfer {
namespace {

checkpoint::TensorSpec to_spec(const TensorEntry& entry) {
  const auto refuse = [&entry](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "tensor \"{}\": {}", entry.name, why);
  };
  if (entry.name.empty()) refuse("a tensor needs a name");
  if (entry.name == "__metadata__") refuse("the safetensors format reserves this name");
  const std::optional<DType> dtype = parse_dtype(entry.dtype);
  if (!dtype) refuse("there is no dtype " + entry.dtype);
  if (entry.shape.size() > static_cast<size_t>(Shape::kMaxRank)) refuse("too many dimensions");
  int64_t bytes = size_of(*dtype);
  for (const int64_t extent : entry.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) refuse("a bad shape");
  }
  return {.name = entry.name, .dtype = *dtype, .shape = Shape(entry.shape)};
}

std::vector<checkpoint::TensorSpec> to_specs(const std::vector<TensorEntry>& entries) {
  std::vector<checkpoint::TensorSpec> specs;
  std::set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    specs.push_back(to_spec(entry));
    if (!names.insert(entry.name).second) {
      fail(ErrorCode::kInvalidArgument, "tensor \"{}\" comes twice", entry.name);
    }
  }
  return specs;
}

}  // namespace

struct TensorFile::Impl {
  Impl(const std::filesystem::path& path, std::vector<checkpoint::TensorSpec> specs)
      : order(specs.size()), writer(path, specs) {
    std::iota(order.begin(), order.end(), size_t{0});
    // The order of SafetensorsWriter.
    std::ranges::stable_sort(order, std::greater<>(),
                             [&specs](size_t index) { return size_of(specs[index].dtype); });
    for (const checkpoint::TensorSpec& spec : specs) remaining_bytes += spec.num_bytes();
  }

  std::vector<size_t> order;
  int64_t remaining_bytes = 0;
  checkpoint::SafetensorsWriter writer;
};

TensorFile::TensorFile(const std::filesystem::path& path, const std::vector<TensorEntry>& tensors)
    : impl_(std::make_unique<Impl>(path, to_specs(tensors))) {}

TensorFile::~TensorFile() = default;

const std::vector<size_t>& TensorFile::order() const {
  return impl_->order;
}

void TensorFile::write(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) > impl_->remaining_bytes) {
    fail(ErrorCode::kInvalidArgument, "{} bytes more than the declared tensors hold",
         std::ssize(bytes) - impl_->remaining_bytes);
  }
  impl_->remaining_bytes -= std::ssize(bytes);
  impl_->writer.write(bytes);
}

void TensorFile::commit() {
  if (impl_->remaining_bytes > 0) {
    fail(ErrorCode::kInvalidArgument, "{} bytes of the declared tensors are missing",
         impl_->remaining_bytes);
  }
  impl_->writer.commit();
}

}  // namespace deepinfer
