nearlight_test(protocol SOURCES protocol_arrival_test.cpp protocol_host_test.cpp protocol_own_memory_test.cpp protocol_ranks.cpp protocol_whole_test.cpp
  DEPS nearlight::testing nearlight::algorithm
  LABELS unit tsan asan TIMEOUT 120 PROCESSORS 2)
nearlight_test(protocol_stress SOURCES protocol_stress_test.cpp protocol_ranks.cpp
  DEPS nearlight::testing nearlight::algorithm
  LABELS slow TIMEOUT 1200 PROCESSORS 2)
# A thread's packs are written and read under one condition, which GCC loses sight of.
target_compile_options(nearlight_test_protocol PRIVATE -Wno-maybe-uninitialized)
target_compile_options(nearlight_test_protocol_stress PRIVATE -Wno-maybe-uninitialized)
nearlight_test(fused_rows SOURCES fused_rows_test.cpp DEPS nearlight::testing LABELS unit tsan asan TIMEOUT 120 PROCESSORS 2)
target_compile_options(nearlight_test_fused_rows PRIVATE -Wno-maybe-uninitialized)
