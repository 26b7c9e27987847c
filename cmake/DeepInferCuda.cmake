# nvcc and the GPU families that the CUDA kernels are compiled for.

# sm90a: Hopper, wgmma. generic: mma.sync, from compute capability 8.0 on. See docs/cuda-kernels.md.
set(DEEPINFER_CUDA_FAMILIES "sm90a;generic" CACHE STRING "Kernel families to compile: sm90a, generic")

if(NOT CMAKE_CUDA_COMPILER)
  find_program(DEEPINFER_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(NOT DEEPINFER_NVCC)
    message(FATAL_ERROR "DEEPINFER_CUDA is on but there is no nvcc: put it on PATH or set CUDA_HOME")
  endif()
  set(CMAKE_CUDA_COMPILER ${DEEPINFER_NVCC})
endif()
# One -gencode per target below: CMake's own list does not know families such as 100f, and the shorthand
# -arch=sm_90a also makes a plain compute_90 pass, which rejects wgmma.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # the driver is found at run time, if there is one
if(DEEPINFER_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${DEEPINFER_CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know that this nvcc speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)

set(DEEPINFER_CUDA_GENCODE "")
if("sm90a" IN_LIST DEEPINFER_CUDA_FAMILIES)
  list(APPEND DEEPINFER_CUDA_GENCODE -gencode=arch=compute_90a,code=sm_90a)
endif()
if("generic" IN_LIST DEEPINFER_CUDA_FAMILIES)
  # compute_100 as PTX as well, for whatever comes after.
  list(APPEND DEEPINFER_CUDA_GENCODE -gencode=arch=compute_80,code=sm_80
       -gencode=arch=compute_100,code=[sm_100,compute_100])
  if(NOT "sm90a" IN_LIST DEEPINFER_CUDA_FAMILIES)
    list(APPEND DEEPINFER_CUDA_GENCODE -gencode=arch=compute_90,code=sm_90)
  endif()
endif()

# How every .cu file is compiled.
set(DEEPINFER_CUDA_COMPILE_OPTIONS
  # No contraction: an fma that is meant is written (docs/design.md, "same tokens everywhere").
  "$<$<COMPILE_LANGUAGE:CUDA>:${DEEPINFER_CUDA_GENCODE};-fmad=false;--expt-relaxed-constexpr;--compress-mode=size>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>"
  # nvcc cannot evaluate fmt 9's checks of format strings.
  "$<$<COMPILE_LANGUAGE:CUDA>:-DFMT_CONSTEVAL=;-DFMT_USE_CONSTEXPR=1>")
