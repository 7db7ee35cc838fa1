#include "memory/cuda_driver.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace nearlight::memory {

namespace {

template <class Function>
Status fetch(Function& target, const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
  if (result != cudaSuccess) {
    // Without a driver every name fails alike, so the name of the first one says nothing.
    const Status why = cuda_status(result, "cudaGetDriverEntryPointByVersion");
    return failure(Code::unsupported, "no usable CUDA driver: %s", why.text().c_str());
  }
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    return failure(Code::unsupported, "the CUDA driver has no %s of CUDA %u.%u", name, version / 1000,
                   version % 1000 / 10);
  }
  target = reinterpret_cast<Function>(address);
  return {};
}

Result<CudaDriver> load() {
  CudaDriver driver{};
  NL_TRY(fetch(driver.get_error_name, "cuGetErrorName", 6000));
  NL_TRY(fetch(driver.get_error_string, "cuGetErrorString", 6000));
  NL_TRY(fetch(driver.device_get_attribute, "cuDeviceGetAttribute", 2000));
  NL_TRY(fetch(driver.device_get_uuid, "cuDeviceGetUuid", 11040));
  NL_TRY(fetch(driver.primary_context_retain, "cuDevicePrimaryCtxRetain", 7000));
  NL_TRY(fetch(driver.primary_context_release, "cuDevicePrimaryCtxRelease", 11000));
  NL_TRY(fetch(driver.context_push, "cuCtxPushCurrent", 4000));
  NL_TRY(fetch(driver.context_pop, "cuCtxPopCurrent", 4000));
  NL_TRY(fetch(driver.mem_granularity, "cuMemGetAllocationGranularity", 10020));
  NL_TRY(fetch(driver.mem_address_reserve, "cuMemAddressReserve", 10020));
  NL_TRY(fetch(driver.mem_address_free, "cuMemAddressFree", 10020));
  NL_TRY(fetch(driver.mem_create, "cuMemCreate", 10020));
  NL_TRY(fetch(driver.mem_release, "cuMemRelease", 10020));
  NL_TRY(fetch(driver.mem_map, "cuMemMap", 10020));
  NL_TRY(fetch(driver.mem_unmap, "cuMemUnmap", 10020));
  NL_TRY(fetch(driver.mem_set_access, "cuMemSetAccess", 10020));
  NL_TRY(fetch(driver.mem_export, "cuMemExportToShareableHandle", 10020));
  NL_TRY(fetch(driver.mem_import, "cuMemImportFromShareableHandle", 10020));
  return driver;
}

}  // namespace

Result<const CudaDriver*> CudaDriver::get() {
  static const Result<CudaDriver> loaded = load();
  if (!loaded.ok()) return loaded.status();
  return &loaded.value();
}

Status CudaDriver::status(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != CUDA_SUCCESS) name = "unknown";
  if (get_error_string(result, &text) != CUDA_SUCCESS) text = "error";
  return failure(Code::cuda_error, "%s: %s (%s)", call, text, name);
}

Status cuda_status(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // else the caller's own next check would find it
  return failure(Code::cuda_error, "%s: %s (%s)", call, cudaGetErrorString(result), cudaGetErrorName(result));
}

Result<DeviceScope> DeviceScope::enter(int device) {
  NL_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  // Lets the run time hold the primary context, so that it outlives this scope; the current device stays.
  NL_TRY(cuda_status(cudaInitDevice(device, 0, 0), "cudaInitDevice"));
  CUcontext context = nullptr;
  NL_TRY(driver->status(driver->primary_context_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  if (Status pushed = driver->status(driver->context_push(context), "cuCtxPushCurrent"); !pushed.ok()) {
    static_cast<void>(driver->primary_context_release(device));  // the failure of the push is the one to tell
    return pushed;
  }
  return DeviceScope(*driver, device);
}

DeviceScope::DeviceScope(DeviceScope&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), device_(other.device_) {}

DeviceScope::~DeviceScope() {
  if (driver_ == nullptr) return;
  // Both fail only when the process's CUDA is being torn down.
  CUcontext context = nullptr;
  static_cast<void>(driver_->context_pop(&context));
  static_cast<void>(driver_->primary_context_release(device_));
}

Result<OwnStream> OwnStream::create() {
  cudaStream_t stream = nullptr;
  NL_TRY(cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  return OwnStream(stream);
}

OwnStream::OwnStream(OwnStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

OwnStream::~OwnStream() {
  // Returns at once; work that still runs keeps what it needs of the stream.
  if (stream_ != nullptr) static_cast<void>(cuda_status(cudaStreamDestroy(stream_), "cudaStreamDestroy"));
}

Result<bool> OwnStream::idle(const char* what) const {
  const cudaError_t state = cudaStreamQuery(stream_);
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) return cuda_status(state, what);
  static_cast<void>(cudaGetLastError());  // "not ready" is remembered as an error too
  return false;
}

Status OwnStream::wait(const char* what, Deadline deadline) const {
  auto pause = std::chrono::microseconds(5);
  for (;;) {
    NL_TRY_ASSIGN(const bool done, idle(what));
    if (done) return {};
    if (deadline.passed()) return failure(Code::timeout, "%s: not done in time", what);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(500));
  }
}

}  // namespace nearlight::memory
