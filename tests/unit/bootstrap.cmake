nearlight_test(bootstrap
  SOURCES bootstrap_exchange_test.cpp bootstrap_fork_group_test.cpp bootstrap_in_process_test.cpp bootstrap_job_test.cpp bootstrap_known_ranks_test.cpp
    bootstrap_regroup_test.cpp
  DEPS nearlight::bootstrap nearlight::testing
  LABELS unit tsan asan)
nearlight_test(bootstrap_meeting SOURCES bootstrap_meeting_test.cpp bootstrap_strangers_test.cpp
  DEPS nearlight::bootstrap nearlight::testing
  LABELS unit tsan asan)
