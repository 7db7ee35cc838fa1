# SPDX-License-Identifier: Apache-2.0
# nearlight_test(<name> SOURCES ... [CUDA_SOURCES ...] [DEPS ...] [LABELS unit tsan asan ...]
#                [TIMEOUT seconds] [PROCESSORS n] [SERIAL] [GPU] [RACECHECK] [NO_MAIN])
#
# One GoogleTest program nearlight_test_<name>; each of its test cases is a ctest entry with the labels
# and the time limit (default 60 s) given.
#   label tsan, asan  the program is also built and run under the tsan / asan-ubsan preset
#   label asan_slow   as asan, in `./dev test --all` only: what takes long and has relatives under asan or tsan
#   label slow        runs in `./dev test --all` only
#   GPU               needs a GPU: skipped where CUDA is off, labelled gpu, carried in the GPU bundle
#   RACECHECK         uses shared memory: the bundle also runs it under racecheck
#   PROCESSORS n      keeps n cores busy (ctest runs fewer tests beside it)
#   SERIAL            nothing else may run beside it
#   NO_MAIN           brings its own main()
#
# The targets nearlight_tests_<label> build the programs that carry a label.

find_package(GTest REQUIRED)
include(GoogleTest)

# Tests are compiled often and run once.
function(nearlight_compile_quickly target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Lets ccache see through precompiled headers.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endfunction()

# The headers that nearly every test takes its time over, compiled once for all of them.
function(nearlight_make_test_headers)
  # A program like those that use them: the compiler wants the same options.
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_headers.cpp" CONTENT "int main() {}\n" @ONLY)
  add_executable(nearlight_test_headers "${PROJECT_BINARY_DIR}/test_headers.cpp")
  nearlight_own_code(nearlight_test_headers)
  nearlight_common_usage(nearlight_test_headers PRIVATE)
  target_link_libraries(nearlight_test_headers PRIVATE GTest::gmock GTest::gtest)
  target_precompile_headers(nearlight_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <chrono> <cstdint> <functional> <memory> <string> <thread> <vector>)
  nearlight_compile_quickly(nearlight_test_headers)
endfunction()

function(nearlight_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GPU;RACECHECK;NO_MAIN;SERIAL" "TIMEOUT;PROCESSORS"
    "SOURCES;CUDA_SOURCES;DEPS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nearlight_test(${name}): not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_GPU AND NOT NEARLIGHT_HAS_CUDA)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  if(NOT arg_SERIAL)
    set(arg_SERIAL OFF)
  endif()
  if(arg_GPU)
    list(APPEND arg_LABELS gpu)
    list(APPEND arg_DEPS nearlight::stuck)  # gpu_support.hpp
  endif()
  list(REMOVE_DUPLICATES arg_LABELS)

  set(target nearlight_test_${name})
  if(arg_NO_MAIN)
    set(gtest GTest::gtest)
  else()
    set(gtest GTest::gtest_main)
  endif()
  nearlight_program(${target} SOURCES ${arg_SOURCES} CUDA_SOURCES ${arg_CUDA_SOURCES}
    DEPS ${arg_DEPS} GTest::gmock ${gtest})
  if(NOT TARGET nearlight_test_headers)
    nearlight_make_test_headers()
  endif()
  target_precompile_headers(${target} REUSE_FROM nearlight_test_headers)
  nearlight_compile_quickly(${target})

  gtest_discover_tests(${target}
    TEST_PREFIX "${name}."
    NO_PRETTY_VALUES
    DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS} RUN_SERIAL ${arg_SERIAL})
  # gtest_discover_tests keeps only the first of several labels, so they are set after it.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_labels.cmake")
  file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [[
if(@target@_TESTS)
  set_tests_properties(${@target@_TESTS} PROPERTIES LABELS "@arg_LABELS@")
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")

  foreach(label IN LISTS arg_LABELS)
    if(NOT TARGET nearlight_tests_${label})
      add_custom_target(nearlight_tests_${label})
    endif()
    add_dependencies(nearlight_tests_${label} ${target})
  endforeach()

  if(arg_GPU)
    # One line a program for the GPU bundle: its path, the limit of one test, what else to run it under.
    set_property(TARGET ${target} PROPERTY NEARLIGHT_GPU_TEST ON)
    set(extra "-")
    if(arg_RACECHECK)
      set(extra "racecheck")
    endif()
    set_property(GLOBAL APPEND_STRING PROPERTY nearlight_gpu_tests
      "$<TARGET_FILE:${target}> ${arg_TIMEOUT} ${extra}\n")
  endif()
endfunction()

# Once, after all tests are known: writes gpu-tests.txt into the build folder.
function(nearlight_write_gpu_test_list)
  get_property(list GLOBAL PROPERTY nearlight_gpu_tests)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu-tests.txt" CONTENT "${list}")
  if(NOT TARGET nearlight_tests_gpu)
    add_custom_target(nearlight_tests_gpu)
  endif()
endfunction()
