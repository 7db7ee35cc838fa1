nearlight_test(trace_samples SOURCES trace_samples_test.cpp DEPS nearlight::trace LABELS unit asan)
