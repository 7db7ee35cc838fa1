// A hook of the algorithms that counts how often what a thread waits for has arrived.
#pragma once

#include <atomic>

#include "algorithm/kinds.hpp"

namespace nearlight::test {

struct CountsArrivals {
  std::atomic<int>* arrivals;
  void at(algorithm::DelayPoint point) const { *arrivals += point == algorithm::DelayPoint::after_arrival; }
};

}  // namespace nearlight::test
