# How every target of this project is compiled, and how a room (a folder of src/) is declared.

add_library(deepinfer_flags INTERFACE)
target_compile_features(deepinfer_flags INTERFACE cxx_std_20)
# Contraction stays off everywhere: an fma that is meant is written (bits must not depend on the compiler's choice).
target_compile_options(deepinfer_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wsign-conversion;-ffp-contract=off>")
# libstdc++ 12's stable_sort uses a function that it has itself deprecated, and clang says so.
target_compile_options(deepinfer_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(DEEPINFER_WERROR)
  target_compile_options(deepinfer_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(DEEPINFER_SANITIZE)
  target_compile_options(deepinfer_flags INTERFACE
    -fsanitize=${DEEPINFER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(deepinfer_flags INTERFACE -fsanitize=${DEEPINFER_SANITIZE})
  # What sanitizers insert misleads g++'s warnings about the flow of data (its manual says so): fmt's parser "overflows".
  target_compile_options(deepinfer_flags INTERFACE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow;-Wno-array-bounds;-Wno-maybe-uninitialized>")
endif()
if(DEEPINFER_FUZZ)
  target_compile_options(deepinfer_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
# Header-only uses of fmt and spdlog: no shared library travels with the program.
# nvcc need not read the whole library: the C++ files define what the kernels' host code calls.
target_compile_definitions(deepinfer_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:FMT_HEADER_ONLY> SPDLOG_FMT_EXTERNAL)

# deepinfer_room(NAME [PROGRAM_ONLY] SOURCES a.cc … DEPENDS room … [LIBRARIES lib …])
# One static library per folder; DEPENDS names the rooms it may include, and nothing else links. PROGRAM_ONLY: no part of
# the installed library.
function(deepinfer_room name)
  cmake_parse_arguments(ROOM "PROGRAM_ONLY" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(deepinfer_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(deepinfer_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(deepinfer_${name} PRIVATE $<BUILD_INTERFACE:deepinfer_flags>)
  foreach(dependency IN LISTS ROOM_DEPENDS)
    target_link_libraries(deepinfer_${name} PUBLIC deepinfer_${dependency})
  endforeach()
  target_link_libraries(deepinfer_${name} PUBLIC ${ROOM_LIBRARIES})
  if(NOT ROOM_PROGRAM_ONLY)
    set_property(GLOBAL APPEND PROPERTY DEEPINFER_ROOMS ${name})
  endif()
endfunction()
