// Text put together as by printf.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace nearlight::cli {

// At most 511 characters at a time; what is longer is cut.
[[gnu::format(printf, 2, 3)]] inline void append(std::string& text, const char* format, ...) {
  char line[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

}  // namespace nearlight::cli
