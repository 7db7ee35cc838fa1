// Physical memory of a GPU and the addresses behind which it is put: what both kinds of cuda_vmm heap are
// made of.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "memory/cuda_driver.hpp"

namespace nearlight::memory {

// `shareable`: with a handle that other processes may import.
CUmemAllocationProp vmm_properties(int device, bool shareable);

// A hold on physical memory, this process's or another's. Mappings keep the memory without it.
class VmmMemory {
 public:
  static Result<VmmMemory> create(const CudaDriver& driver, int device, std::size_t bytes, bool shareable);
  // Memory that another process exported; it keeps `fd`.
  static Result<VmmMemory> import(const CudaDriver& driver, int fd);
  VmmMemory(VmmMemory&& other) noexcept;
  VmmMemory& operator=(VmmMemory&&) = delete;
  ~VmmMemory();

  CUmemGenericAllocationHandle get() const { return handle_; }
  Result<UniqueFd> export_fd() const;
  // Lets go, and says whether that went well.
  Status release();

 private:
  VmmMemory(const CudaDriver& driver, CUmemGenericAllocationHandle handle)
      : driver_(&driver), handle_(handle) {}
  const CudaDriver* driver_;  // null: nothing is held
  CUmemGenericAllocationHandle handle_;
};

// One range of addresses with a part for each rank. The last owner unmaps the parts, then frees the range.
class VmmRange {
 public:
  static Result<std::shared_ptr<VmmRange>> reserve(const CudaDriver& driver, int nranks, std::size_t stride);
  VmmRange(const CudaDriver& driver, CUdeviceptr base, int nranks, std::size_t stride)
      : driver_(driver), base_(base), stride_(stride), mapped_(static_cast<std::size_t>(nranks)) {}
  VmmRange(const VmmRange&) = delete;
  ~VmmRange();

  CUdeviceptr part(int rank) const { return base_ + static_cast<std::size_t>(rank) * stride_; }
  // Puts memory of stride bytes behind the rank's part. Once a rank; different ranks from different threads.
  Status map(int rank, const VmmMemory& memory);
  // Lets `devices` read and write a part that is mapped.
  Status allow(int rank, const std::vector<int>& devices) const;
  // Fills the rank's part with zeros, on the current device.
  Status zero(int rank, Deadline deadline);

 private:
  const CudaDriver& driver_;
  CUdeviceptr base_;
  std::size_t stride_;
  std::vector<std::atomic<bool>> mapped_;
  // The GPU may still write here although nobody waits for it any more. Taking the memory away would break
  // the process's CUDA, so it is then left in place for good.
  std::atomic<bool> in_use_{false};
};

}  // namespace nearlight::memory
