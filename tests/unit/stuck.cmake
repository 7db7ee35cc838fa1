nearlight_test(stuck
  SOURCES stuck_test.cpp
  DEPS nearlight::stuck
  LABELS unit)
