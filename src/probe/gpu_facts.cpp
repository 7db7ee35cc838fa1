#include "probe/gpu_facts.hpp"

#include <algorithm>

namespace nearlight::probe {

const char* name_of(Link link) {
  switch (link) {
    case Link::none:
      return "none";
    case Link::pcie:
      return "PCIe";
    case Link::nvlink:
      return "NVLink";
  }
  return "invalid";
}

Link GpuFacts::between(int a, int b) const {
  const auto count = static_cast<int>(devices.size());
  if (a < 0 || b < 0 || a >= count || b >= count) return Link::none;
  return std::min(devices[static_cast<std::size_t>(a)].links[static_cast<std::size_t>(b)],
                  devices[static_cast<std::size_t>(b)].links[static_cast<std::size_t>(a)]);
}

std::pair<int, int> GpuFacts::first_pair() const {
  for (int a = 0; a < static_cast<int>(devices.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(devices.size()); ++b) {
      if (between(a, b) != Link::none) return {a, b};
    }
  }
  return {-1, -1};
}

}  // namespace nearlight::probe
