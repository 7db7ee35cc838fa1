# SPDX-License-Identifier: Apache-2.0
# Run as a script in every build: writes OUTPUT when its content would change.
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" rev-parse --verify HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" rev-parse --show-prefix
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # A copy of the sources inside some other repository is not that repository's commit.
  if(NOT failed AND prefix STREQUAL "")
    set(commit "${head}")
    execute_process(COMMAND "${git}" --no-optional-locks -C "${SOURCE_DIR}" status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
// Written by the build; do not edit.
#pragma once

namespace nearlight::build_info {

inline constexpr const char* version = "@VERSION@";
inline constexpr const char* commit = "@commit@";
inline constexpr const char* build_type = "@BUILD_TYPE@";
inline constexpr const char* compiler = "@COMPILER@";
inline constexpr const char* cuda_compiler = "@CUDA_COMPILER@";  // empty: built without CUDA

}  // namespace nearlight::build_info
]])
