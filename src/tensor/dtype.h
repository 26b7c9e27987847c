#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

/// Element types. kE2M1x2 holds two FP4 values per byte, the even (lower) index in the low nibble;
/// shapes and strides of such tensors count bytes, as in the checkpoint.
enum class DType : uint8_t { kF32, kBF16, kE4M3, kE8M0, kE2M1x2, kI8, kU8, kU16, kI32, kI64 };

/// Bytes per element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kU16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kE4M3:
    case DType::kE8M0:
    case DType::kE2M1x2:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// The spelling used in safetensors headers ("F8_E4M3"); kE2M1x2 is written as "I8".
std::string_view to_string(DType dtype);
/// The inverse; nothing for spellings this project does not store.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace deepinfer
