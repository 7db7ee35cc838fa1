#include "tests/support/held.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/ranks.hpp"

namespace nearlight::test {

namespace {

std::ptrdiff_t entries_of(const char* folder) {
  std::ptrdiff_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    static_cast<void>(entry);
    ++entries;
  }
  return entries;
}

std::ptrdiff_t lines_with(const char* file, const std::string& one, const std::string& other) {
  std::ptrdiff_t found = 0;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(one) != std::string::npos && line.find(other) != std::string::npos) ++found;
  }
  return found;
}

void compare(const Held& now, const Held& before, const HeldOptions& options, Problems& problems) {
  const auto same = [&problems](const char* what, std::ptrdiff_t is, std::ptrdiff_t was) {
    if (is != was) problems.add("%td %s, before %td", is, what, was);
  };
  same("descriptors", now.descriptors, before.descriptors);
  same("threads", now.threads, before.threads);
  same("mappings of shared memory", now.mappings, before.mappings);
  same("socket names", now.names, before.names);
  if (options.warm && kSlowDown == 1 && now.resident_kb > before.resident_kb + options.more_kb)
    problems.add("%td kB resident, before %td", now.resident_kb, before.resident_kb);
}

}  // namespace

Held Held::now() {
  Held held;
  held.descriptors = entries_of("/proc/self/fd");
  held.threads = entries_of("/proc/self/task");
  held.mappings = lines_with("/proc/self/maps", "nearlight", "memfd");
  held.names = lines_with("/proc/net/unix", "@nearlight/", "test-" + std::to_string(::getpid()) + "-");
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) held.resident_kb = std::atol(line.c_str() + 7);
  }
  return held;
}

void expect_same(const Held& before, const HeldOptions& options, Problems& problems) {
  Problems last;
  const bool same = wait_until(
      [&] {
        last = {};
        compare(Held::now(), before, options, last);
        return last.none();
      },
      options.patience);
  if (!same) problems.add("%s", last.text().c_str());
}

}  // namespace nearlight::test
