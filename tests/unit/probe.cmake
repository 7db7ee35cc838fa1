nearlight_test(probe SOURCES probe_test.cpp probe_lines_test.cpp DEPS nearlight::probe LABELS unit asan tsan PROCESSORS 2)
