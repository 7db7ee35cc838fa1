nearlight_test(memory
  SOURCES memory_shm_heap_test.cpp
  DEPS nearlight::memory nearlight::bootstrap nearlight::testing
  LABELS unit tsan asan)

if(NEARLIGHT_HAS_CUDA)
  nearlight_test(memory_cuda
    SOURCES memory_cuda_test.cpp
    DEPS nearlight::memory nearlight::bootstrap nearlight::testing
    LABELS unit)
endif()

if(NEARLIGHT_HAS_NCCL_HEADERS)
  # Libraries that look like NCCL as far as they go.
  foreach(fake a b c)
    add_library(nearlight_fake_nccl_${fake} MODULE memory_fake_nccl.c)
    set_target_properties(nearlight_fake_nccl_${fake} PROPERTIES C_VISIBILITY_PRESET default)
  endforeach()
  target_compile_definitions(nearlight_fake_nccl_a PRIVATE FAKE_VERSION=22304)
  target_compile_definitions(nearlight_fake_nccl_b PRIVATE FAKE_VERSION=22809)
  target_compile_definitions(nearlight_fake_nccl_c PRIVATE FAKE_VERSION=22809 FAKE_ALL_REDUCE=1)
  nearlight_test(memory_nccl
    SOURCES memory_nccl_test.cpp
    DEPS nearlight::memory nearlight::bootstrap nearlight::testing
    LABELS unit)
  add_dependencies(nearlight_test_memory_nccl nearlight_fake_nccl_a nearlight_fake_nccl_b)
  target_compile_definitions(nearlight_test_memory_nccl PRIVATE
    FAKE_NCCL_A="$<TARGET_FILE:nearlight_fake_nccl_a>"
    FAKE_NCCL_B="$<TARGET_FILE:nearlight_fake_nccl_b>")
endif()
