// What GPU ranks tell each other about their GPUs as a communicator is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "probe/lines.hpp"

namespace nearlight::runtime {

struct Place {
  int device;
  int sms, capability;
  std::uint32_t shared_bytes;  // that a CTA may have
  char uuid[16];
  char name[256];
};

Result<Place> look_at(int device);
// The largest number of ranks on one GPU; with `alone`, two on one GPU are Code::unsupported, and both are
// named.
Result<int> ranks_per_gpu(const std::vector<Place>& places, bool alone);
// The GPU that all ranks have, else "".
std::string common_gpu(const std::vector<Place>& places);
// The lowest compute capability.
int oldest_of(const std::vector<Place>& places);
// Whether a CTA of each may have algorithm::kLargeSharedCta bytes of shared memory.
bool have_large_shared(const std::vector<Place>& places);

struct Paths {
  probe::PathType worst = probe::PathType::nvl;  // of any two ranks
  // The worst of those that go over PCIe, or of which nobody knows where they go; nvl: there is none.
  probe::PathType beside_nvlink = probe::PathType::nvl;
};
// Of all pairs of ranks; collective.
Result<Paths> paths_between(Exchange& exchange, const std::vector<Place>& places, int device,
                            Deadline deadline);
// Takes in another pair.
void add_path(Paths& paths, probe::PathType path);
// Code::unsupported where GPUs of a host are, or may be, connected by PCIe.
Status check_by_nvlink(const Paths& paths);

}  // namespace nearlight::runtime
