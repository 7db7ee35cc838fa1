// What this process holds, to find out whether something was left behind.
#pragma once

#include <chrono>
#include <cstddef>

#include "tests/support/problems.hpp"

namespace nearlight::test {

struct Held {
  std::ptrdiff_t descriptors = 0, threads = 0;
  std::ptrdiff_t mappings = 0;  // of memory that processes of nearlight share
  std::ptrdiff_t names = 0;     // abstract socket names with this process's id (fresh_key())
  std::ptrdiff_t resident_kb = 0;

  static Held now();
};

struct HeldOptions {
  // What the C library keeps of the first threads is held by now: resident memory counts as well.
  bool warm = false;
  // One leaked heap a cycle would be many times this.
  std::ptrdiff_t more_kb = 4096;
  std::chrono::milliseconds patience{10'000};
};

// Adds to `problems` what is held now and was not before. A thread that was joined may still be listed for a
// moment, so this waits a little.
void expect_same(const Held& before, const HeldOptions& options, Problems& problems);

}  // namespace nearlight::test
