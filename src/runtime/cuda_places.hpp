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
// Code::unsupported where the worst path between two GPUs is another one.
Status check_by_nvlink(probe::PathType worst);
// The GPU that all ranks have, else "".
std::string common_gpu(const std::vector<Place>& places);
// The lowest compute capability.
int oldest_of(const std::vector<Place>& places);
// Whether a CTA of each may have algorithm::kLargeSharedCta bytes of shared memory.
bool have_large_shared(const std::vector<Place>& places);
// The worst of what lies between this rank's GPU and the others', and then between any two; collective.
Result<probe::PathType> worst_path(Exchange& exchange, const std::vector<Place>& places, int device,
                                   Deadline deadline);

}  // namespace nearlight::runtime
