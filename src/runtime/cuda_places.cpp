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

void add_path(Paths& paths, probe::PathType path) {
  using probe::PathType;
  paths.worst = std::max(paths.worst, path);
  // Beside CPUs with C2C there is no PCIe between GPUs.
  const bool fits = path == PathType::nvl || path == PathType::same_gpu || path == PathType::c2c;
  if (!fits) paths.beside_nvlink = std::max(paths.beside_nvlink, path);
}

Result<Paths> paths_between(Exchange& exchange, const std::vector<Place>& places, int device,
                            Deadline deadline) {
  Paths paths;
  const auto rank = static_cast<std::size_t>(exchange.rank());
  for (std::size_t other = 0; other < places.size(); ++other) {
    if (other == rank) continue;
    probe::PathFacts facts;
    facts.same_gpu = same_gpu(places[rank], places[other]);
    if (!facts.same_gpu) facts = probe::path_facts(device, places[other].uuid);
    add_path(paths, probe::path_of(facts));
  }
  NL_TRY_ASSIGN(const auto all, gather_values(exchange, paths, deadline));
  for (const Paths& one : all) {
    paths.worst = std::max(paths.worst, one.worst);
    paths.beside_nvlink = std::max(paths.beside_nvlink, one.beside_nvlink);
  }
  return paths;
}

Status check_by_nvlink(const Paths& paths) {
  if (paths.beside_nvlink == probe::PathType::nvl) return {};
  if (paths.beside_nvlink == probe::PathType::unknown) {
    return failure(Code::unsupported,
                   "whether NVLink connects the GPUs cannot be told, as not every process sees all of them "
                   "(%s=cuda_vmm takes them all the same)",
                   variables::kNcclMemory.name);
  }
  return failure(Code::unsupported,
                 "two GPUs have %s between them and not NVLink (%s=cuda_vmm takes them all the same)",
                 probe::name_of(paths.beside_nvlink), variables::kNcclMemory.name);
}

}  // namespace nearlight::runtime
