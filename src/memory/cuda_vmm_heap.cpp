#include "memory/cuda_vmm_heap.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "memory/cuda_driver.hpp"
#include "memory/cuda_vmm_range.hpp"
#include "memory/handover.hpp"

namespace nearlight::memory {

namespace {

class CudaVmmHeap final : public Heap {
 public:
  CudaVmmHeap(std::shared_ptr<VmmRange> range, const HeapView& view)
      : range_(std::move(range)), view_(view) {}
  const HeapView& view() const override { return view_; }
  const char* kind() const override { return "cuda_vmm"; }

 private:
  std::shared_ptr<VmmRange> range_;
  HeapView view_;
};

// What each rank tells the others. Processes may count the devices differently; the UUID is the same for all.
struct Place {
  int device;
  CUuuid uuid;
  std::size_t granularity;
};

bool same(const CUuuid& a, const CUuuid& b) { return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }

Status require(const CudaDriver& driver, int device, CUdevice_attribute attribute, const char* what) {
  int supported = 0;
  NL_TRY(driver.status(driver.device_get_attribute(&supported, attribute, device), "cuDeviceGetAttribute"));
  if (supported != 0) return {};
  return failure(Code::unsupported, "device %d has no %s", device, what);
}

Result<Place> look_at(const CudaDriver& driver, int device, bool shareable) {
  NL_TRY(fault_points::pass(fault_points::kVmmDevice));
  NL_TRY(require(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                 "virtual memory management"));
  if (shareable) {
    NL_TRY(require(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                   "memory that other processes can import (file descriptors)"));
  }
  Place place{.device = device, .uuid = {}, .granularity = 0};
  NL_TRY(driver.status(driver.device_get_uuid(&place.uuid, device), "cuDeviceGetUuid"));
  const CUmemAllocationProp properties = vmm_properties(device, shareable);
  NL_TRY(driver.status(
      driver.mem_granularity(&place.granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  return place;
}

Status check_device(int device) {
  int count = 0;
  NL_TRY(cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  if (device >= 0 && device < count) return {};
  return failure(Code::invalid_argument, "device: %d is not one of the %d devices", device, count);
}

// This rank's device's view of the others' memory; each rank asks for its own, so that together they ask in
// both directions. A GPU that this process does not see (CUDA_VISIBLE_DEVICES) cannot be asked about: there,
// mapping its memory is what tells.
Status check_peers(const CudaDriver& driver, int device, const std::vector<Place>& places) {
  NL_TRY(fault_points::pass(fault_points::kVmmPeers));
  int count = 0;
  NL_TRY(cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  for (int peer = 0; peer < count; ++peer) {
    if (peer == device) continue;
    CUuuid uuid{};
    NL_TRY(driver.status(driver.device_get_uuid(&uuid, peer), "cuDeviceGetUuid"));
    const auto is_there = [&](const Place& place) { return same(place.uuid, uuid); };
    const auto rank = std::find_if(places.begin(), places.end(), is_there);
    if (rank == places.end()) continue;
    int can = 0;
    NL_TRY(cuda_status(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer"));
    if (can == 0) {
      return failure(Code::unsupported, "device %d cannot access the memory of device %d (rank %td's)",
                     device, peer, rank - places.begin());
    }
  }
  return {};
}

// One process: one range that all share, mapped for all their devices.
Result<std::shared_ptr<VmmRange>> map_for_threads(const CudaDriver& driver, Exchange& exchange, int device,
                                                  const std::vector<Place>& places, std::size_t stride,
                                                  Deadline deadline) {
  std::vector<int> devices;
  for (const Place& place : places) devices.push_back(place.device);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());

  Result<std::shared_ptr<VmmRange>> made(nullptr);
  if (exchange.rank() == 0) made = VmmRange::reserve(driver, exchange.nranks(), stride);
  NL_TRY_ASSIGN(const std::shared_ptr<VmmRange> range, share_from_rank0(exchange, std::move(made), deadline));
  const auto provide = [&]() -> Status {
    NL_TRY_ASSIGN(VmmMemory memory, VmmMemory::create(driver, device, stride, false));
    NL_TRY(range->map(exchange.rank(), memory));
    return memory.release();  // the mapping keeps the memory from here on
  };
  NL_TRY(agree(exchange, provide(), deadline));
  NL_TRY(agree(exchange, range->allow(exchange.rank(), devices), deadline));
  return range;
}

// Several processes: each has a range of its own, with everyone's memory mapped for its own device.
Result<std::shared_ptr<VmmRange>> map_for_processes(const CudaDriver& driver, Exchange& exchange, int device,
                                                    std::size_t stride, Deadline deadline) {
  const auto reserved = VmmRange::reserve(driver, exchange.nranks(), stride);
  NL_TRY(agree(exchange, reserved.status(), deadline));
  const std::shared_ptr<VmmRange> range = *reserved;
  const auto provide = [&]() -> Result<UniqueFd> {
    NL_TRY_ASSIGN(VmmMemory memory, VmmMemory::create(driver, device, stride, true));
    NL_TRY(range->map(exchange.rank(), memory));
    NL_TRY_ASSIGN(UniqueFd fd, memory.export_fd());
    NL_TRY(memory.release());  // mapping and descriptor keep the memory from here on
    return fd;
  };
  const auto own = provide();
  NL_TRY(agree(exchange, own.status(), deadline));
  const auto take = [&](int rank, const UniqueFd& fd) -> Status {
    NL_TRY_ASSIGN(VmmMemory memory, VmmMemory::import(driver, fd.get()));
    NL_TRY(range->map(rank, memory));
    return memory.release();
  };
  // Every rank goes through all rounds, whatever happened to it.
  Status mapped;
  for (int rank = 0; rank < exchange.nranks(); ++rank) {
    const bool mine = rank == exchange.rank();
    NL_TRY_ASSIGN(const UniqueFd fd, exchange.share_fd(mine ? own->get() : -1, rank, deadline));
    if (mapped.ok() && !mine) mapped = take(rank, fd);
    if (mapped.ok()) mapped = range->allow(rank, {device});
    if (!mapped.ok()) mapped = mapped.with_context("the memory of rank " + std::to_string(rank));
  }
  NL_TRY(agree(exchange, mapped, deadline));
  return range;
}

}  // namespace

Result<std::unique_ptr<Heap>> create_cuda_vmm_heap(Exchange& exchange, int device, std::size_t bytes,
                                                   Deadline deadline) {
  // Each step ends with everyone knowing whether all came through, so that nobody waits for a rank that
  // stopped earlier.
  NL_TRY(check_same_bytes(exchange, bytes, deadline));
  const auto loaded = CudaDriver::get();
  NL_TRY(agree(exchange, loaded.status(), deadline));
  const CudaDriver& driver = **loaded;
  NL_TRY(agree(exchange, check_device(device), deadline));
  auto scope = DeviceScope::enter(device);
  NL_TRY(agree(exchange, scope.status(), deadline));
  const auto place = look_at(driver, device, !exchange.same_process());
  NL_TRY(agree(exchange, place.status(), deadline));
  NL_TRY_ASSIGN(const std::vector<Place> places, gather_values(exchange, *place, deadline));
  NL_TRY(agree(exchange, check_peers(driver, device, places), deadline));

  std::size_t granularity = 1;  // powers of two, so the largest suits all
  for (const Place& one : places) granularity = std::max(granularity, one.granularity);
  HeapView view;
  view.rank = exchange.rank();
  view.nranks = exchange.nranks();
  view.bytes = bytes;
  if (bytes > (std::size_t{1} << 46) / static_cast<std::size_t>(view.nranks)) {
    return failure(Code::invalid_argument,
                   "bytes: %zu on each of %d ranks is more than there are addresses for", bytes, view.nranks);
  }
  view.stride = (bytes + granularity - 1) / granularity * granularity;

  auto mapped = exchange.same_process()
                    ? map_for_threads(driver, exchange, device, places, view.stride, deadline)
                    : map_for_processes(driver, exchange, device, view.stride, deadline);
  if (!mapped.ok()) return mapped.status();
  view.base = reinterpret_cast<char*>((*mapped)->part(0));
  NL_TRY(agree(exchange, (*mapped)->zero(view.rank, deadline), deadline));
  return std::unique_ptr<Heap>(std::make_unique<CudaVmmHeap>(*mapped, view));
}

}  // namespace nearlight::memory
