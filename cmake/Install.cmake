# `cmake --install`: the program, the public headers, and all rooms merged into one static library that others find with
# find_package(deepinfer) and link as deepinfer::deepinfer.

include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY DEEPINFER_ROOMS)
set(objects "")
set(libraries "")
foreach(room IN LISTS rooms)
  list(APPEND objects $<TARGET_OBJECTS:deepinfer_${room}>)
  get_target_property(linked deepinfer_${room} INTERFACE_LINK_LIBRARIES)
  foreach(library IN LISTS linked)
    if(library AND NOT library MATCHES "deepinfer_")
      list(APPEND libraries ${library})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES libraries)
# What the installed package must find again; cmake/deepinferConfig.cmake.in does so.
foreach(library IN LISTS libraries)
  if(NOT library MATCHES "^Threads::Threads$|^CUDA::cudart_static$|utf8proc")
    message(FATAL_ERROR "A room links ${library}: teach cmake/deepinferConfig.cmake.in to find it, then list it here")
  endif()
endforeach()

add_library(deepinfer_library STATIC ${objects})
add_library(deepinfer::deepinfer ALIAS deepinfer_library)
set_target_properties(deepinfer_library PROPERTIES
  OUTPUT_NAME deepinfer EXPORT_NAME deepinfer LINKER_LANGUAGE CXX)
target_compile_features(deepinfer_library INTERFACE cxx_std_20)
target_include_directories(deepinfer_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(deepinfer_library INTERFACE
  Threads::Threads "$<BUILD_INTERFACE:${libraries}>")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deepinfer)
configure_package_config_file(cmake/deepinferConfig.cmake.in
  ${PROJECT_BINARY_DIR}/deepinferConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepinferConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(TARGETS deepinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS deepinfer_library EXPORT deepinferTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/deepinfer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT deepinferTargets NAMESPACE deepinfer:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/deepinferConfig.cmake ${PROJECT_BINARY_DIR}/deepinferConfigVersion.cmake
        DESTINATION ${package_dir})
