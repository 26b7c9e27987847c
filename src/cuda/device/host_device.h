#pragma once

/// Marks small functions that run on the device and, in unit tests, on the host as well.
#ifdef __CUDACC__
#define DEEPINFER_HD __host__ __device__ __forceinline__
#else
#define DEEPINFER_HD inline
#endif
