// Where in the scratch the calls of few CTAs put their slots. Lines of memory differ in speed with where they
// lie (docs/dev/lab.md), so ranks on GPUs of their own measure at creation which regions are the fastest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithm/kinds.hpp"

namespace nearlight::route {

// One kind of call that is measured, and stands for all of one-shot by its protocol of no more CTAs and more
// than those of the kind before.
struct SlotKind {
  algorithm::Protocol protocol;
  std::uint32_t grid, threads;
  std::uint32_t bytes;  // of the message measured: all threads have something
};
inline constexpr SlotKind kSlotKinds[] = {
    {algorithm::Protocol::ll, 1, 32, 256},
    {algorithm::Protocol::ll, 4, 128, 4096},
    {algorithm::Protocol::sentinel, 2, 128, 4096},
    {algorithm::Protocol::sentinel, 8, 128, 16384},
};
inline constexpr std::size_t kSlotKindCount = std::size(kSlotKinds);

// The first regions to try for a call of `grid` CTAs where there are `regions`: 0 among them, none of them
// too late for the others to follow, at most `most`, evenly spread.
std::vector<std::uint32_t> candidates(std::uint32_t regions, std::uint32_t grid, std::uint32_t most);

// Equal on all ranks.
class Placement {
 public:
  // As nobody has measured: region 0 first.
  Placement() = default;
  explicit Placement(const char* why_not) : why_not_(why_not) {}

  // `us`: what an operation took with each of `tried` as its first region. Keeps the best one.
  void enter(std::size_t kind, std::span<const std::uint32_t> tried, std::span<const float> us);

  // Of a one-shot call; 0 where nothing was measured.
  std::uint32_t first_region(algorithm::Protocol protocol, std::uint32_t grid) const;
  // What was gained, on one line for a person.
  std::string in_words() const;

 private:
  struct Entry {
    bool known = false;
    std::uint32_t first = 0;
    float best_us = 0, median_us = 0, worst_us = 0;
  };
  Entry entries_[kSlotKindCount];
  const char* why_not_ = "not asked for";
};

}  // namespace nearlight::route
