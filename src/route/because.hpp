// The reason of a route, in static storage, with a word about limits that were not measured on such a
// machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "route/table.hpp"

namespace nearlight::route {

// A text that is a template argument.
template <std::size_t kSize>
struct Words {
  constexpr Words(const char (&text)[kSize]) {  // NOLINT: a text is words
    std::copy(text, text + kSize, chars);
  }
  constexpr Words(const std::array<char, kSize>& text) {  // NOLINT: likewise
    std::copy(text.begin(), text.end(), chars);
  }
  char chars[kSize] = {};
};

template <Words kFirst, Words kSecond>
inline constexpr auto kJoined = [] {
  std::array<char, sizeof kFirst.chars + sizeof kSecond.chars - 1> joined{};
  std::copy(std::begin(kSecond.chars), std::end(kSecond.chars),
            std::copy(std::begin(kFirst.chars), std::end(kFirst.chars) - 1, joined.begin()));
  return joined;
}();

template <Words kWhy>
const char* because(const Table& table) {
  static constexpr Words kText = kWhy;
  switch (table.origin) {
    case Origin::measured:
      break;
    case Origin::assumed:
      return kJoined<kWhy, " (by limits measured on an H200)">.data();
    case Origin::file:
      return kJoined<kWhy, " (by the limits of NEARLIGHT_ROUTE_TABLE)">.data();
  }
  return kText.chars;
}

// `limited`: Options::max_ctas allowed no more CTAs.
template <Words kWhy>
const char* because(const Table& table, bool limited) {
  return limited ? because<Words(kJoined<kWhy, "; no more CTAs, by max_ctas">)>(table) : because<kWhy>(table);
}

}  // namespace nearlight::route
