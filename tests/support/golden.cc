#include "tests/support/golden.h"

#include <cstdlib>

#include "base/error.h"
#include "tests/support/tensors.h"

namespace deepinfer::testing {
namespace {

template <typename T>
std::vector<int64_t> widened(const TensorView& view) {
  const T* data = view.as<const T>();
  return {data, data + view.shape().num_elements()};
}

}  // namespace

std::filesystem::path data_path(std::string_view name) {
  return std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / name;
}

std::optional<std::filesystem::path> large_data_path(std::string_view name) {
  const char* folder = std::getenv("DEEPINFER_TEST_DATA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return std::filesystem::path(folder) / name;
}

std::vector<float> Golden::floats(std::string_view name) const {
  return to_floats(view(name));
}

std::vector<int64_t> Golden::ints(std::string_view name) const {
  const TensorView values = view(name);
  switch (values.dtype()) {
    case DType::kI64:
      return widened<int64_t>(values);
    case DType::kI32:
      return widened<int32_t>(values);
    case DType::kU16:
      return widened<uint16_t>(values);
    default:
      return widened<uint8_t>(values);
  }
}

TensorView Golden::bytes_as(std::string_view name, DType dtype) const {
  const TensorView stored = view(name);
  DEEPINFER_CHECK(size_of(dtype) == size_of(stored.dtype()), "{} holds {}", name,
                  to_string(stored.dtype()));
  return {stored.data(), dtype, stored.shape()};
}

Tensor Golden::tensor(std::string_view name, DType dtype, const Shape& shape) const {
  const std::vector<float> values = floats(name);
  Tensor result = to_tensor(values, dtype, shape);
  DEEPINFER_CHECK(to_floats(result) == values, "{} is not exact in {}", name, to_string(dtype));
  return result;
}

QuantView Golden::fp8(std::string_view name) const {
  return {.weight = bytes_as(fmt::format("{}.weight", name), DType::kE4M3),
          .scale = bytes_as(fmt::format("{}.scale", name), DType::kE8M0),
          .scale_rows = 32};
}

QuantView Golden::fp4(std::string_view name) const {
  return {.weight = bytes_as(fmt::format("{}.weight", name), DType::kE2M1x2),
          .scale = bytes_as(fmt::format("{}.scale", name), DType::kE8M0),
          .scale_rows = 1};
}

}  // namespace deepinfer::testing
