#include "memory/cuda_vmm_heap.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "memory/cuda_driver.hpp"
#include "memory/handover.hpp"

namespace nearlight::memory {

namespace {

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// One range of addresses with a part for each rank. The last owner unmaps the parts, then frees the range.
class Range {
 public:
  static Result<std::shared_ptr<Range>> reserve(const CudaDriver& driver, int nranks, std::size_t stride) {
    CUdeviceptr base = 0;
    const std::size_t total = static_cast<std::size_t>(nranks) * stride;
    NL_TRY(driver.status(driver.mem_address_reserve(&base, total, 0, 0, 0), "cuMemAddressReserve"));
    return std::make_shared<Range>(driver, base, nranks, stride);
  }
  Range(const CudaDriver& driver, CUdeviceptr base, int nranks, std::size_t stride)
      : driver_(driver), base_(base), stride_(stride), mapped_(static_cast<std::size_t>(nranks)) {}
  Range(const Range&) = delete;
  ~Range() {
    if (in_use_.load()) return;
    // These fail only when the process's CUDA is being torn down, and the memory goes with it.
    for (std::size_t rank = 0; rank < mapped_.size(); ++rank) {
      if (mapped_[rank].load()) static_cast<void>(driver_.mem_unmap(part(static_cast<int>(rank)), stride_));
    }
    static_cast<void>(driver_.mem_address_free(base_, mapped_.size() * stride_));
  }

  CUdeviceptr part(int rank) const { return base_ + static_cast<std::size_t>(rank) * stride_; }

  // Puts memory of `device` behind the rank's part. Called once, by that rank.
  Status provide(int rank, int device) {
    CUmemGenericAllocationHandle handle{};
    const CUmemAllocationProp properties = properties_on(device);
    NL_TRY(driver_.status(driver_.mem_create(&handle, stride_, &properties, 0), "cuMemCreate")
               .with_context("device " + std::to_string(device) + ", " + std::to_string(stride_) + " bytes"));
    Status mapped = driver_.status(driver_.mem_map(part(rank), stride_, 0, handle, 0), "cuMemMap");
    if (mapped.ok()) mapped_[static_cast<std::size_t>(rank)].store(true);
    // The mapping keeps the memory from here on.
    Status released = driver_.status(driver_.mem_release(handle), "cuMemRelease");
    return mapped.ok() ? released : mapped;
  }

  Status allow(int rank, const std::vector<int>& devices) const {
    std::vector<CUmemAccessDesc> access;
    for (const int device : devices) {
      CUmemAccessDesc entry{};
      entry.location = properties_on(device).location;
      entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      access.push_back(entry);
    }
    return driver_.status(driver_.mem_set_access(part(rank), stride_, access.data(), access.size()),
                          "cuMemSetAccess");
  }

  // The GPU may still write here although nobody waits for it any more. Taking the memory away would break
  // the process's CUDA, so it is left in place for good.
  void leave_in_place() { in_use_.store(true); }

 private:
  const CudaDriver& driver_;
  CUdeviceptr base_;
  std::size_t stride_;
  std::vector<std::atomic<bool>> mapped_;
  std::atomic<bool> in_use_{false};
};

class CudaVmmHeap final : public Heap {
 public:
  CudaVmmHeap(std::shared_ptr<Range> range, const HeapView& view) : range_(std::move(range)), view_(view) {}
  const HeapView& view() const override { return view_; }
  const char* kind() const override { return "cuda_vmm"; }

 private:
  std::shared_ptr<Range> range_;
  HeapView view_;
};

// What each rank tells the others.
struct Place {
  int device;
  std::size_t granularity;
};

Result<Place> look_at(const CudaDriver& driver, int device) {
  int supported = 0;
  NL_TRY(driver.status(driver.device_get_attribute(
                           &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
                       "cuDeviceGetAttribute"));
  if (supported == 0) {
    return failure(Code::unsupported, "device %d has no virtual memory management", device);
  }
  Place place{.device = device, .granularity = 0};
  const CUmemAllocationProp properties = properties_on(device);
  NL_TRY(driver.status(
      driver.mem_granularity(&place.granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  return place;
}

// Each rank asks for its own device's view, so that together they ask in both directions.
Status check_peers(int device, const std::vector<int>& devices) {
  for (const int peer : devices) {
    if (peer == device) continue;
    int can = 0;
    NL_TRY(cuda_status(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer"));
    if (can == 0)
      return failure(Code::unsupported, "device %d cannot access the memory of device %d", device, peer);
  }
  return {};
}

Status check_device(int device) {
  int count = 0;
  NL_TRY(cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  if (device >= 0 && device < count) return {};
  return failure(Code::invalid_argument, "device: %d is not one of the %d devices", device, count);
}

Status zero(Range& range, int rank, std::size_t stride, Deadline deadline) {
  NL_TRY_ASSIGN(const OwnStream stream, OwnStream::create());
  NL_TRY(cuda_status(cudaMemsetAsync(reinterpret_cast<void*>(range.part(rank)), 0, stride, stream.get()),
                     "cudaMemsetAsync"));
  Status done = stream.wait("zeroing the heap", deadline);
  if (done.code() == Code::timeout) range.leave_in_place();
  return done;
}

}  // namespace

Result<std::unique_ptr<Heap>> create_cuda_vmm_heap(Exchange& exchange, int device, std::size_t bytes,
                                                   Deadline deadline) {
  if (!exchange.same_process()) {
    return failure(Code::unsupported, "cuda_vmm needs all ranks in one process; these are in several");
  }
  // Each step ends with everyone knowing whether all came through, so that nobody waits for a rank that
  // stopped earlier.
  NL_TRY(check_same_bytes(exchange, bytes, deadline));
  const auto driver = CudaDriver::get();
  NL_TRY(agree(exchange, driver.status(), deadline));
  NL_TRY(agree(exchange, check_device(device), deadline));
  auto scope = DeviceScope::enter(device);
  NL_TRY(agree(exchange, scope.status(), deadline));
  const auto place = look_at(*driver.value(), device);
  NL_TRY(agree(exchange, place.status(), deadline));

  NL_TRY_ASSIGN(const std::vector<Place> places, gather_values(exchange, place.value(), deadline));
  std::vector<int> devices;
  std::size_t granularity = 1;  // powers of two, so the largest suits all
  for (const Place& one : places) {
    devices.push_back(one.device);
    granularity = std::max(granularity, one.granularity);
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  NL_TRY(agree(exchange, check_peers(device, devices), deadline));

  HeapView view;
  view.rank = exchange.rank();
  view.nranks = exchange.nranks();
  view.bytes = bytes;
  if (bytes > (std::size_t{1} << 46) / static_cast<std::size_t>(view.nranks)) {
    return failure(Code::invalid_argument,
                   "bytes: %zu on each of %d ranks is more than there are addresses for", bytes, view.nranks);
  }
  view.stride = (bytes + granularity - 1) / granularity * granularity;

  Result<std::shared_ptr<Range>> made(nullptr);
  if (view.rank == 0) made = Range::reserve(*driver.value(), view.nranks, view.stride);
  NL_TRY_ASSIGN(const std::shared_ptr<Range> range, share_from_rank0(exchange, std::move(made), deadline));
  view.base = reinterpret_cast<char*>(range->part(0));
  NL_TRY(agree(exchange, range->provide(view.rank, device), deadline));
  NL_TRY(agree(exchange, range->allow(view.rank, devices), deadline));
  NL_TRY(agree(exchange, zero(*range, view.rank, view.stride, deadline), deadline));
  return std::unique_ptr<Heap>(std::make_unique<CudaVmmHeap>(range, view));
}

}  // namespace nearlight::memory
