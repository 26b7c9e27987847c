#pragma once

#include <cstdint>

namespace deepinfer::cpu {

/// Index scores (spec/model.md §5): the cpu family's arithmetic. Queries and keys are FP4 codes
/// with a power of two per 32 channels, so twice a value is a whole number of at most 12 and the
/// products of a block of 32 channels add up exactly in integers. Then, in fp32: a head's blocks
/// are scaled and added in ascending order, and the heads' contributions w · relu(dot) likewise.

/// Keys scored together, one per lane.
inline constexpr int64_t kIndexLanes = 16;

/// The query side of one row, as pack_query() makes it.
struct IndexQuery {
  int32_t* words;   // [heads, dim/4]: four signed bytes, twice the values
  int32_t* offset;  // [heads, dim/32]: what makes up for the offset of the keys' bytes
  float* scale;     // [heads, dim/32]: of the block, a quarter of it
  float* weights;   // [heads]
};

/// Up to sixteen keys, as pack_keys() makes them.
struct IndexKeys {
  int32_t* words;  // [dim/4, 16]: four unsigned bytes, twice the values plus 12
  float* scale;    // [dim/32, 16]
};

struct IndexShape {
  int64_t heads;
  int64_t dim;  // a multiple of 32
};

}  // namespace deepinfer::cpu
