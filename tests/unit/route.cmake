nearlight_test(route SOURCES route_test.cpp DEPS nearlight::route LABELS unit asan)
