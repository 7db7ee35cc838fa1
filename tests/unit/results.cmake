# What cli/ knows about result files and workloads, and the committed files themselves.
if(NOT TARGET nearlight::cli)
  return()
endif()
nearlight_test(results SOURCES machine_test.cpp results_test.cpp results_ratio_test.cpp DEPS nearlight::cli LABELS unit asan_slow)
nearlight_test(results_committed SOURCES results_committed_test.cpp DEPS nearlight::cli LABELS unit)
target_compile_definitions(nearlight_test_results_committed PRIVATE NEARLIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
nearlight_test(workload SOURCES workload_test.cpp DEPS nearlight::cli LABELS unit asan_slow)
nearlight_test(sol_command SOURCES sol_command_test.cpp DEPS nearlight::cli LABELS unit PROCESSORS 2)
