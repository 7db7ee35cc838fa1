# SPDX-License-Identifier: Apache-2.0
# Sets nearlight_built_in_workloads to a C++ source with the content of bench/workloads/*.json.
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/workloads/*.json")
list(SORT files)
set(entries "")
foreach(file IN LISTS files)
  cmake_path(GET file STEM LAST_ONLY stem)
  file(READ "${file}" json)
  string(APPEND entries "    {\"${stem}\", R\"json(${json})json\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
endforeach()
set(nearlight_built_in_workloads "${CMAKE_CURRENT_BINARY_DIR}/built_in_workloads.cpp")
file(CONFIGURE OUTPUT "${nearlight_built_in_workloads}" @ONLY CONTENT [[
// Written by the build from bench/workloads/; do not edit.
#include "cli/built_in_workloads.hpp"

namespace nearlight::cli {

namespace {
constexpr BuiltInWorkload kTable[] = {
@entries@};
}  // namespace

const std::span<const BuiltInWorkload> kBuiltInWorkloads = kTable;

}  // namespace nearlight::cli
]])
