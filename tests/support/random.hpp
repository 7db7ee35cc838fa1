// Numbers that a test draws: the same for the same seed and purpose, wherever it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace nearlight::test {

// A sequence for each purpose, so that none of them moves another.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t purpose)
      : engine_(seed * 0x9e3779b97f4a7c15u ^ purpose * 0xc2b2ae3d27d4eb4fu) {}
  // In [0, end).
  std::uint64_t below(std::uint64_t end) { return engine_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t n>
  T one_of(const T (&values)[n]) {
    return values[below(n)];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace nearlight::test
