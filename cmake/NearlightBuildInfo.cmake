# SPDX-License-Identifier: Apache-2.0
# nearlight::build_info gives one private header, "nearlight/build_info.hpp", with the commit that was
# built. It is looked at in every build and rewritten only when it changes.
set(nearlight_build_info_header "${PROJECT_BINARY_DIR}/generated/nearlight/build_info.hpp")
add_custom_target(nearlight_build_info_check
  COMMAND "${CMAKE_COMMAND}"
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
    -DOUTPUT=${nearlight_build_info_header}
    -DVERSION=${PROJECT_VERSION}
    -DBUILD_TYPE=${CMAKE_BUILD_TYPE}
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "-DCUDA_COMPILER=${CMAKE_CUDA_COMPILER_VERSION}"
    -P "${PROJECT_SOURCE_DIR}/cmake/WriteBuildInfo.cmake"
  BYPRODUCTS "${nearlight_build_info_header}"
  COMMENT "Looking at the commit"
  VERBATIM)
add_library(nearlight_build_info INTERFACE)
add_library(nearlight::build_info ALIAS nearlight_build_info)
target_include_directories(nearlight_build_info INTERFACE "${PROJECT_BINARY_DIR}/generated")
add_dependencies(nearlight_build_info nearlight_build_info_check)
