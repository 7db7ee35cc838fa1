# SPDX-License-Identifier: Apache-2.0
# Decides whether the CUDA side is built. Sets
#   NEARLIGHT_HAS_CUDA          1 or 0
#   NEARLIGHT_HAS_NCCL_HEADERS  1 or 0: nccl.h and nccl_device.h stand in CUDA's include folder
# The CUDA run time is linked statically. libcuda and libnccl are never linked.

set(NEARLIGHT_HAS_CUDA 0)
set(NEARLIGHT_HAS_NCCL_HEADERS 0)

if(NOT NEARLIGHT_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "NEARLIGHT_CUDA is '${NEARLIGHT_CUDA}'; it must be AUTO, ON or OFF")
endif()

if(NOT NEARLIGHT_CUDA STREQUAL "OFF")
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(NEARLIGHT_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin
      PATHS /usr/local/cuda/bin)
    mark_as_advanced(NEARLIGHT_NVCC)
    if(NEARLIGHT_NVCC)
      set(CMAKE_CUDA_COMPILER "${NEARLIGHT_NVCC}" CACHE FILEPATH "CUDA compiler")
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures to compile for")
  endif()
  if(NOT DEFINED CMAKE_CUDA_RUNTIME_LIBRARY)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  endif()

  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(NEARLIGHT_HAS_CUDA 1)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)

    find_path(NEARLIGHT_NCCL_INCLUDE_DIR NAMES nccl_device.h
      HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
    mark_as_advanced(NEARLIGHT_NCCL_INCLUDE_DIR)
    if(NEARLIGHT_NCCL_INCLUDE_DIR AND EXISTS "${NEARLIGHT_NCCL_INCLUDE_DIR}/nccl.h")
      set(NEARLIGHT_HAS_NCCL_HEADERS 1)
    endif()
  elseif(NEARLIGHT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "NEARLIGHT_CUDA is ON and no working nvcc was found. "
      "Put it on PATH or set CUDACXX.")
  endif()
endif()

if(NEARLIGHT_HAS_CUDA)
  message(STATUS "nearlight: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, "
    "NCCL headers: ${NEARLIGHT_HAS_NCCL_HEADERS}")
else()
  message(STATUS "nearlight: without CUDA (NEARLIGHT_CUDA=${NEARLIGHT_CUDA})")
endif()
