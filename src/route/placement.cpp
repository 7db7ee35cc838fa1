#include "route/placement.hpp"

#include <algorithm>
#include <cstdio>

namespace nearlight::route {

std::vector<std::uint32_t> candidates(std::uint32_t regions, std::uint32_t grid, std::uint32_t most) {
  std::vector<std::uint32_t> all;
  if (grid == 0 || grid > regions || most == 0) return all;
  const std::uint32_t last = regions - grid;  // it may be the first one
  const std::uint32_t count = std::min(most, last + 1);
  for (std::uint32_t i = 0; i < count; ++i)
    all.push_back(count == 1 ? 0 : static_cast<std::uint32_t>(std::uint64_t{last} * i / (count - 1)));
  return all;
}

void Placement::enter(std::size_t kind, std::span<const std::uint32_t> tried, std::span<const float> us) {
  if (tried.empty() || tried.size() != us.size()) return;
  Entry& entry = entries_[kind];
  entry.known = true;
  const auto best = std::min_element(us.begin(), us.end());
  entry.first = tried[static_cast<std::size_t>(best - us.begin())];
  std::vector<float> sorted(us.begin(), us.end());
  std::sort(sorted.begin(), sorted.end());
  entry.best_us = sorted.front();
  entry.median_us = sorted[sorted.size() / 2];
  entry.worst_us = sorted.back();
}

std::uint32_t Placement::first_region(algorithm::Protocol protocol, std::uint32_t grid) const {
  for (std::size_t kind = 0; kind < kSlotKindCount; ++kind) {
    if (kSlotKinds[kind].protocol == protocol && grid <= kSlotKinds[kind].grid) return entries_[kind].first;
  }
  return 0;
}

std::string Placement::in_words() const {
  std::string text;
  for (std::size_t kind = 0; kind < kSlotKindCount; ++kind) {
    const Entry& entry = entries_[kind];
    if (!entry.known) continue;
    char part[160];
    std::snprintf(part, sizeof part, "%s%s, %u CTA%s: region %u, %.3f us (median %.3f, worst %.3f)",
                  text.empty() ? "" : "; ", algorithm::name_of(kSlotKinds[kind].protocol),
                  kSlotKinds[kind].grid, kSlotKinds[kind].grid == 1 ? "" : "s", entry.first,
                  static_cast<double>(entry.best_us), static_cast<double>(entry.median_us),
                  static_cast<double>(entry.worst_us));
    text += part;
  }
  return text.empty() ? std::string("not measured: ") + why_not_ : text;
}

}  // namespace nearlight::route
