// CUDA's errors as Status, and the driver functions that the run time does not offer. libcuda is never
// linked: a program starts without it and gets a Status that says so.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "base/deadline.hpp"
#include "base/status.hpp"

namespace nearlight::memory {

struct CudaDriver {
  PFN_cuGetErrorName_v6000 get_error_name;
  PFN_cuGetErrorString_v6000 get_error_string;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute;
  PFN_cuDeviceGetUuid_v11040 device_get_uuid;
  PFN_cuDevicePrimaryCtxRetain_v7000 primary_context_retain;
  PFN_cuDevicePrimaryCtxRelease_v11000 primary_context_release;
  PFN_cuCtxPushCurrent_v4000 context_push;
  PFN_cuCtxPopCurrent_v4000 context_pop;
  PFN_cuMemGetAllocationGranularity_v10020 mem_granularity;
  PFN_cuMemAddressReserve_v10020 mem_address_reserve;
  PFN_cuMemAddressFree_v10020 mem_address_free;
  PFN_cuMemCreate_v10020 mem_create;
  PFN_cuMemRelease_v10020 mem_release;
  PFN_cuMemMap_v10020 mem_map;
  PFN_cuMemUnmap_v10020 mem_unmap;
  PFN_cuMemSetAccess_v10020 mem_set_access;
  PFN_cuMemExportToShareableHandle_v10020 mem_export;
  PFN_cuMemImportFromShareableHandle_v10020 mem_import;

  // The table, fetched on the first call. Code::unsupported with the reason when there is no driver, or one
  // that is too old.
  static Result<const CudaDriver*> get();

  // `call` is the name of the function that returned `result`.
  Status status(CUresult result, const char* call) const;
};

// Ok for cudaSuccess; else "<call>: <CUDA's text> (<CUDA's name>)". Clears the error that CUDA remembers for
// this thread.
Status cuda_status(cudaError_t result, const char* call);

// Makes a device's primary context current for this thread and puts back what was current before, without
// creating a context on the device that was.
class DeviceScope {
 public:
  static Result<DeviceScope> enter(int device);
  DeviceScope(DeviceScope&& other) noexcept;
  DeviceScope& operator=(DeviceScope&&) = delete;
  ~DeviceScope();

 private:
  DeviceScope(const CudaDriver& driver, int device) : driver_(&driver), device_(device) {}
  const CudaDriver* driver_;
  int device_;
};

// A stream of the current device that does not wait for the legacy default stream.
class OwnStream {
 public:
  static Result<OwnStream> create();
  OwnStream(OwnStream&& other) noexcept;
  OwnStream& operator=(OwnStream&&) = delete;
  ~OwnStream();

  cudaStream_t get() const { return stream_; }
  // Whether the work so far is done. A failure of that work comes out here, under the name `what`.
  Result<bool> idle(const char* what) const;
  // Polls until the work so far is done. Code::timeout names `what`; the work may still be running then.
  Status wait(const char* what, Deadline deadline) const;

 private:
  explicit OwnStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream_;
};

}  // namespace nearlight::memory
