#include "cli/peers/beside.hpp"

#include <unistd.h>

namespace nearlight::peers {

std::string beside_this_program(const char* name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof path)) return name;
  const std::string self(path, static_cast<std::size_t>(length));
  return self.substr(0, self.rfind('/') + 1) + name;
}

}  // namespace nearlight::peers
