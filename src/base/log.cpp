#include "base/log.hpp"

#include <unistd.h>

#include <string>

namespace nearlight::log {

namespace {

void write_line(std::string_view text) {
  const std::string line = "nearlight: " + std::string(text) + "\n";
  // One write, so that lines of several threads and processes stay whole. That it fails cannot be told
  // anyone.
  [[maybe_unused]] const ::ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void warn(std::string_view text) { write_line(text); }
void note(std::string_view text) { write_line(text); }

}  // namespace nearlight::log
