nearlight_test(base
  SOURCES base_bounded_call_test.cpp base_deadline_test.cpp base_exchange_test.cpp base_status_test.cpp
    base_types_test.cpp base_unique_fd_test.cpp base_variables_test.cpp
  DEPS nearlight::base nearlight::bootstrap
  LABELS unit tsan asan)
