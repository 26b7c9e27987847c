#pragma once

#include <cstdint>
#include <span>

/// The fake quantisers that are part of the model (spec/model.md §6): per row, blocks of
/// consecutive channels. They read fp32 values (rounded to act by the caller) and write the stored
/// codes and scales; a value is code * scale, exact in bf16.
namespace deepinfer {

inline constexpr int64_t kFp8Block =
    32;  ///< Channels per UE8M0 scale of FP8 rows and FP4 indexer rows.
inline constexpr int64_t kFp4KvBlock = 16;  ///< Channels per E4M3 scale of compressed KV rows.

/// Window KV and the inputs of FP8/FP4 products: e4m3 codes [n], e8m0 scales [n/32].
void quantize_fp8(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void dequantize_fp8(const uint8_t* codes, const uint8_t* scales, std::span<float> x);
/// x ← dequantize(quantize(x)): the round trip in front of a product.
void round_trip_fp8(std::span<float> x);

/// Indexer queries and keys: e2m1 codes [n/2] (even channel in the low nibble), e8m0 scales [n/32].
void quantize_fp4_index(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void dequantize_fp4_index(const uint8_t* codes, const uint8_t* scales, std::span<float> x);

/// Compressed KV: e2m1 codes [n/2], e4m3 scales [n/16].
void quantize_fp4_kv(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void dequantize_fp4_kv(const uint8_t* codes, const uint8_t* scales, std::span<float> x);

}  // namespace deepinfer
