// The GPUs this process sees, and how they reach each other. Without CUDA, a driver or a GPU: an empty list
// and the reason.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace nearlight::probe {

enum class Link { none, pcie, nvlink };

// "none", "PCIe", "NVLink".
const char* name_of(Link link);

struct GpuFacts {
  struct Device {
    std::string name;  // "NVIDIA H200"
    int sm_count = 0;
    int compute_major = 0;
    int compute_minor = 0;
    std::size_t memory_bytes = 0;
    std::vector<Link> links;  // to device i, by index; `none` to itself and where there is no peer access
  };
  std::vector<Device> devices;
  std::string driver;   // of the kernel module, "580.159.04"; "" when not known
  std::string cuda;     // of the run time built in, "13.0"; "" without CUDA
  std::string problem;  // why `devices` is empty; "" otherwise

  // The link between two devices, both ways: the slower one.
  Link between(int a, int b) const;
  // The first pair with peer access, {-1, -1} when there is none.
  std::pair<int, int> first_pair() const;
};

// Never fails: what cannot be found out is empty, and `problem` says why.
GpuFacts gpu_facts();

}  // namespace nearlight::probe
