nearlight_test(route
  SOURCES placement_test.cpp route_lines_test.cpp route_nccl_test.cpp route_table_file_test.cpp route_table_test.cpp route_test.cpp route_width_test.cpp
  DEPS nearlight::route LABELS unit asan)
