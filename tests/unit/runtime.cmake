nearlight_test(runtime
  SOURCES runtime_call_end_test.cpp runtime_call_ledger_test.cpp runtime_call_log_test.cpp runtime_checks_test.cpp runtime_communicator_test.cpp runtime_health_test.cpp
    runtime_kernel_loop_test.cpp runtime_layout_test.cpp runtime_path_test.cpp runtime_early_launch_test.cpp runtime_poll_test.cpp runtime_retry_test.cpp
    runtime_nccl_memory_test.cpp runtime_overlap_test.cpp runtime_steering_test.cpp
  DEPS nearlight::testing
  LABELS unit tsan asan)
nearlight_test(runtime_peer_watch SOURCES runtime_peer_watch_test.cpp DEPS nearlight::testing LABELS unit asan)
nearlight_test(runtime_dump SOURCES runtime_dump_test.cpp DEPS nearlight::testing LABELS unit tsan asan)
if(NEARLIGHT_HAS_NCCL_HEADERS)
  nearlight_test(runtime_nccl_fallback
    SOURCES runtime_nccl_fallback_test.cpp "${PROJECT_SOURCE_DIR}/tests/api/fake_cuda.cpp"
      "${PROJECT_SOURCE_DIR}/tests/api/fake_driver.cpp" "${PROJECT_SOURCE_DIR}/tests/api/fake_streams.cpp"
    DEPS nearlight::testing LABELS unit)
  add_dependencies(nearlight_test_runtime_nccl_fallback nearlight_fake_nccl_c)
  target_compile_definitions(nearlight_test_runtime_nccl_fallback PRIVATE
    FAKE_NCCL="$<TARGET_FILE:nearlight_fake_nccl_c>")
endif()
nearlight_test(fused SOURCES fused_test.cpp DEPS nearlight::testing LABELS unit tsan asan TIMEOUT 120 PROCESSORS 2)
nearlight_test(gemv SOURCES gemv_lanes_test.cpp gemv_test.cpp DEPS nearlight::testing LABELS unit tsan asan TIMEOUT 120 PROCESSORS 2)
