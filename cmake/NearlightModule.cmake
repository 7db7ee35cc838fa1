# SPDX-License-Identifier: Apache-2.0
# nearlight_module(<name> [SOURCES a.cpp ...] [CUDA_SOURCES b.cu ...] [DEPS nearlight::base ...]
#                  [PRIVATE_DEPS nlohmann_json::nlohmann_json ...])
#
# One folder, one target: the static library nearlight_<name>, known as nearlight::<name>. Without
# sources it is a header-only (INTERFACE) target. CUDA_SOURCES are left out where CUDA is off.
# Includes are written from the roots src/ and include/: "base/status.hpp", <nearlight/version.h>.
# Every source sees NEARLIGHT_HAS_CUDA and NEARLIGHT_HAS_NCCL_HEADERS as 1 or 0.
#
# nearlight_program(<target> OUTPUT <file name> SOURCES ... [CUDA_SOURCES ...] DEPS ...)
# makes a program in the same way.

find_package(Threads REQUIRED)

function(nearlight_common_usage target scope)
  target_include_directories(${target} ${scope}
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  target_compile_definitions(${target} ${scope}
    NEARLIGHT_HAS_CUDA=${NEARLIGHT_HAS_CUDA}
    NEARLIGHT_HAS_NCCL_HEADERS=${NEARLIGHT_HAS_NCCL_HEADERS})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} Threads::Threads)
  if(NEARLIGHT_HAS_CUDA)
    target_link_libraries(${target} ${scope} CUDA::cudart_static)
  endif()
endfunction()

function(nearlight_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPS;PRIVATE_DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nearlight_module(${name}): not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target nearlight_${name})
  set(sources ${arg_SOURCES})
  if(NEARLIGHT_HAS_CUDA)
    list(APPEND sources ${arg_CUDA_SOURCES})
  endif()
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    nearlight_own_code(${target})
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_DEPS})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(nearlight::${name} ALIAS ${target})
  nearlight_common_usage(${target} ${scope})
  target_link_libraries(${target} ${scope} ${arg_DEPS})
endfunction()

function(nearlight_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT" "SOURCES;CUDA_SOURCES;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nearlight_program(${target}): not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(sources ${arg_SOURCES})
  if(NEARLIGHT_HAS_CUDA)
    list(APPEND sources ${arg_CUDA_SOURCES})
  endif()
  add_executable(${target} ${sources})
  nearlight_own_code(${target})
  nearlight_common_usage(${target} PRIVATE)
  # Programs may share headers of their own: "cli/table.hpp", "tests/support/ranks.hpp".
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_DEPS} ${CMAKE_DL_LIBS})
  if(arg_OUTPUT)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${arg_OUTPUT}")
  endif()
  if(NEARLIGHT_STATIC_CXX)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()
