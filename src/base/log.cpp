#include "base/log.hpp"

#include <unistd.h>

#include <string>

namespace nearlight::log {

void warn(std::string_view text) {
  const std::string line = "nearlight: " + std::string(text) + "\n";
  // One write, so that lines of several threads and processes stay whole. That it fails cannot be told
  // anyone.
  [[maybe_unused]] const ::ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace nearlight::log
