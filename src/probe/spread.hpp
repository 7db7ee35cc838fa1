// Medians and ranges of what was measured line by line.
#pragma once

#include <string>
#include <vector>

#include "probe/sol.hpp"

namespace nearlight::probe {

// `values_us` must not be empty.
Spread spread_of(std::string place, const std::vector<double>& values_us);
double median_of(std::vector<double> values_us);

// What was measured in one direction at one place, line by line: index i is the same line in all lists.
struct Direction {
  std::string from;  // "GPU 0 SM 66"
  std::string to;
  std::vector<double> l2rtt_us;  // at the sender
  std::vector<double> one_way_us;
  std::vector<double> remote_load_us;  // empty where there is none
};

// Fills the spreads and medians of `report`. sol: per line, L2 round trip at the sender + one way.
void fill_report(SolReport& report, const std::vector<Direction>& directions);

}  // namespace nearlight::probe
