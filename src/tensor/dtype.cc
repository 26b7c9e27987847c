#include "tensor/dtype.h"

#include <array>
#include <utility>

namespace deepinfer {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{
    {DType::kF32, "F32"},
    {DType::kBF16, "BF16"},
    {DType::kE4M3, "F8_E4M3"},
    {DType::kE8M0, "F8_E8M0"},
    {DType::kI8, "I8"},
    {DType::kU8, "U8"},
    {DType::kU16, "U16"},
    {DType::kI32, "I32"},
    {DType::kI64, "I64"},
    {DType::kE2M1x2, "I8"},
}};

}  // namespace

std::string_view to_string(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const auto& [value, spelling] : kNames) {
    if (spelling == name) return value;
  }
  return std::nullopt;
}

}  // namespace deepinfer
