# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache where it is installed; nothing depends on it.
if(NEARLIGHT_CCACHE)
  find_program(NEARLIGHT_CCACHE_PROGRAM ccache)
  mark_as_advanced(NEARLIGHT_CCACHE_PROGRAM)
  if(NEARLIGHT_CCACHE_PROGRAM)
    foreach(lang CXX CUDA)
      if(NOT CMAKE_${lang}_COMPILER_LAUNCHER)
        set(CMAKE_${lang}_COMPILER_LAUNCHER "${NEARLIGHT_CCACHE_PROGRAM}")
      endif()
    endforeach()
  endif()
endif()
