#include "cli/text_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

namespace nearlight::cli {

Result<std::string> read_text_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(path.c_str(), "r"), &std::fclose);
  if (in == nullptr) return system_failure("fopen " + path, errno);
  std::string text;
  char part[1 << 16];
  for (;;) {
    const std::size_t got = std::fread(part, 1, sizeof part, in.get());
    text.append(part, got);
    if (std::ferror(in.get())) return system_failure("reading " + path, errno);
    if (got < sizeof part) return text;
    if (text.size() > kMaxTextFileBytes) {
      return failure(Code::invalid_argument, "%s has more than %zu bytes", path.c_str(), kMaxTextFileBytes);
    }
  }
}

Status write_text_file(const std::string& path, std::string_view text) {
  const std::string neighbour = path + ".part" + std::to_string(::getpid());
  std::FILE* out = std::fopen(neighbour.c_str(), "w");
  if (out == nullptr) return system_failure("fopen " + neighbour, errno);
  int error = std::fwrite(text.data(), 1, text.size(), out) == text.size() ? 0 : errno;
  if (std::fclose(out) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(neighbour.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  std::remove(neighbour.c_str());
  return system_failure("writing " + path, error);
}

}  // namespace nearlight::cli
