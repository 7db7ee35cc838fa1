nearlight_test(runtime
  SOURCES runtime_call_ledger_test.cpp runtime_checks_test.cpp runtime_communicator_test.cpp runtime_kernel_loop_test.cpp runtime_layout_test.cpp
    runtime_path_test.cpp runtime_poll_test.cpp runtime_steering_test.cpp
  DEPS nearlight::testing
  LABELS unit tsan asan)
nearlight_test(runtime_peer_watch SOURCES runtime_peer_watch_test.cpp DEPS nearlight::testing LABELS unit asan)
