nearlight_test(device SOURCES device_channel_test.cpp device_misuse_test.cpp device_pattern_test.cpp
  DEPS nearlight::exec
  LABELS unit tsan asan TIMEOUT 120 PROCESSORS 2)
