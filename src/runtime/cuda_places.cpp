#include "runtime/cuda_places.hpp"

#include <algorithm>
#include <iterator>

#include "algorithm/gemv.hpp"
#include "base/fault_point.hpp"
#include "base/variables.hpp"
#include "probe/line_test.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

namespace {

bool same_gpu(const Place& a, const Place& b) {
  return std::equal(std::begin(a.uuid), std::end(a.uuid), b.uuid);
}

}  // namespace

Result<Place> look_at(int device) {
  NL_TRY(fault_points::pass(fault_points::kCudaDevice));
  int devices = 0;
  NL_TRY_CUDA(cudaGetDeviceCount(&devices));
  if (device < 0 || device >= devices) {
    return failure(Code::invalid_argument, "device: %d, but this machine has %d", device, devices);
  }
  cudaDeviceProp properties{};
  NL_TRY_CUDA(cudaGetDeviceProperties(&properties, device));
  Place place{device,
              properties.multiProcessorCount,
              properties.major * 10 + properties.minor,
              static_cast<std::uint32_t>(properties.sharedMemPerBlockOptin),
              {},
              {}};
  std::copy(std::begin(properties.uuid.bytes), std::end(properties.uuid.bytes), place.uuid);
  std::copy(std::begin(properties.name), std::end(properties.name), place.name);
  place.name[sizeof place.name - 1] = '\0';
  return place;
}

Result<int> ranks_per_gpu(const std::vector<Place>& places, bool alone) {
  int most = 1;
  for (std::size_t a = 0; a < places.size(); ++a) {
    int here = 1;
    for (std::size_t b = 0; b < a; ++b) {
      if (!same_gpu(places[a], places[b])) continue;
      ++here;
      if (alone) {
        return failure(
            Code::unsupported,
            "ranks %zu and %zu are on the same GPU (device %d): their kernels might never run together", b, a,
            places[a].device);
      }
    }
    most = std::max(most, here);
  }
  return most;
}

Status check_by_nvlink(probe::PathType worst) {
  if (worst == probe::PathType::nvl || worst == probe::PathType::same_gpu) return {};
  return failure(Code::unsupported, "GPUs are connected by %s and not by NVLink (%s=cuda_vmm takes them)",
                 probe::name_of(worst), variables::kNcclMemory.name);
}

std::string common_gpu(const std::vector<Place>& places) {
  const std::string name = places[0].name;
  const bool all =
      std::all_of(places.begin(), places.end(), [&name](const Place& place) { return name == place.name; });
  return all ? name : "";
}

int oldest_of(const std::vector<Place>& places) {
  int capability = places[0].capability;
  for (const Place& place : places) capability = std::min(capability, place.capability);
  return capability;
}

bool have_large_shared(const std::vector<Place>& places) {
  return std::all_of(places.begin(), places.end(),
                     [](const Place& place) { return place.shared_bytes >= algorithm::kLargeSharedCta; });
}

Result<probe::PathType> worst_path(Exchange& exchange, const std::vector<Place>& places, int device,
                                   Deadline deadline) {
  probe::PathType worst = probe::PathType::nvl;
  const auto rank = static_cast<std::size_t>(exchange.rank());
  for (std::size_t other = 0; other < places.size(); ++other) {
    if (other == rank) continue;
    probe::PathFacts facts;
    facts.same_gpu = same_gpu(places[rank], places[other]);
    if (!facts.same_gpu) facts = probe::path_facts(device, places[other].uuid);
    worst = std::max(worst, probe::path_of(facts));
  }
  NL_TRY_ASSIGN(const auto all, gather_values(exchange, worst, deadline));
  return *std::max_element(all.begin(), all.end());
}

}  // namespace nearlight::runtime
