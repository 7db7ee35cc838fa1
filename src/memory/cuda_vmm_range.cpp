#include "memory/cuda_vmm_range.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "base/fault_point.hpp"

namespace nearlight::memory {

CUmemAllocationProp vmm_properties(int device, bool shareable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

Result<VmmMemory> VmmMemory::create(const CudaDriver& driver, int device, std::size_t bytes, bool shareable) {
  NL_TRY(fault_points::pass(fault_points::kVmmCreate));
  CUmemGenericAllocationHandle handle{};
  const CUmemAllocationProp properties = vmm_properties(device, shareable);
  NL_TRY(driver.status(driver.mem_create(&handle, bytes, &properties, 0), "cuMemCreate")
             .with_context("device " + std::to_string(device) + ", " + std::to_string(bytes) + " bytes"));
  return VmmMemory(driver, handle);
}

Result<VmmMemory> VmmMemory::import(const CudaDriver& driver, int fd) {
  NL_TRY(fault_points::pass(fault_points::kVmmImport));
  CUmemGenericAllocationHandle handle{};
  NL_TRY(driver.status(driver.mem_import(&handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                       "cuMemImportFromShareableHandle"));
  return VmmMemory(driver, handle);
}

VmmMemory::VmmMemory(VmmMemory&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_) {}

VmmMemory::~VmmMemory() {
  // Where it matters whether this goes well, release() was called before.
  static_cast<void>(release());
}

Result<UniqueFd> VmmMemory::export_fd() const {
  NL_TRY(fault_points::pass(fault_points::kVmmExport));
  int fd = -1;
  NL_TRY(driver_->status(driver_->mem_export(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                         "cuMemExportToShareableHandle"));
  return UniqueFd(fd);
}

Status VmmMemory::release() {
  const CudaDriver* const driver = std::exchange(driver_, nullptr);
  return driver == nullptr ? Status() : driver->status(driver->mem_release(handle_), "cuMemRelease");
}

Result<std::shared_ptr<VmmRange>> VmmRange::reserve(const CudaDriver& driver, int nranks,
                                                    std::size_t stride) {
  NL_TRY(fault_points::pass(fault_points::kVmmReserve));
  CUdeviceptr base = 0;
  const std::size_t total = static_cast<std::size_t>(nranks) * stride;
  NL_TRY(driver.status(driver.mem_address_reserve(&base, total, 0, 0, 0), "cuMemAddressReserve"));
  return std::make_shared<VmmRange>(driver, base, nranks, stride);
}

VmmRange::~VmmRange() {
  if (in_use_.load()) return;
  // These fail only when the process's CUDA is being torn down, and the memory goes with it.
  for (std::size_t rank = 0; rank < mapped_.size(); ++rank) {
    if (mapped_[rank].load()) static_cast<void>(driver_.mem_unmap(part(static_cast<int>(rank)), stride_));
  }
  static_cast<void>(driver_.mem_address_free(base_, mapped_.size() * stride_));
}

Status VmmRange::map(int rank, const VmmMemory& memory) {
  NL_TRY(fault_points::pass(fault_points::kVmmMap));
  NL_TRY(driver_.status(driver_.mem_map(part(rank), stride_, 0, memory.get(), 0), "cuMemMap"));
  mapped_[static_cast<std::size_t>(rank)].store(true);
  return {};
}

Status VmmRange::allow(int rank, const std::vector<int>& devices) const {
  NL_TRY(fault_points::pass(fault_points::kVmmAllow));
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    CUmemAccessDesc entry{};
    entry.location = vmm_properties(device, false).location;
    entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(entry);
  }
  return driver_.status(driver_.mem_set_access(part(rank), stride_, access.data(), access.size()),
                        "cuMemSetAccess");
}

Status VmmRange::zero(int rank, Deadline deadline) {
  NL_TRY(fault_points::pass(fault_points::kVmmZero));
  NL_TRY_ASSIGN(const OwnStream stream, OwnStream::create());
  NL_TRY(cuda_status(cudaMemsetAsync(reinterpret_cast<void*>(part(rank)), 0, stride_, stream.get()),
                     "cudaMemsetAsync"));
  Status done = stream.wait("zeroing the heap", deadline);
  if (done.code() == Code::timeout) in_use_.store(true);
  return done;
}

}  // namespace nearlight::memory
