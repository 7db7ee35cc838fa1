# SPDX-License-Identifier: Apache-2.0
# Warnings, language level, floating-point rules and sanitizers for own code. All of it is private to a target: nothing
# reaches a user who links nearlight.

set(nearlight_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wundef -Wvla)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND nearlight_warnings -Wduplicated-cond -Wlogical-op)
endif()

function(nearlight_own_code target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${nearlight_warnings}>"
    # A product is rounded before it is added, as on the GPU and whatever the CPU has an instruction for.
    "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>"
    # CMake 3.25 does not know nvcc's C++20.
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall,-Wextra>")
  if(NEARLIGHT_WERROR)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Werror>")
  endif()
  if(NEARLIGHT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${NEARLIGHT_SANITIZE} -fno-omit-frame-pointer)
    if(NEARLIGHT_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=all)
    endif()
    # The instrumented code makes GCC guess wrong in these.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-error=maybe-uninitialized -Wno-error=array-bounds
        -Wno-error=stringop-overflow -Wno-error=stringop-overread -Wno-error=restrict)
      if(NEARLIGHT_SANITIZE MATCHES "thread")
        target_compile_options(${target} PRIVATE -Wno-error=tsan)
      endif()
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${NEARLIGHT_SANITIZE})
  endif()
endfunction()
