#include "runtime/cuda_arguments.hpp"

#include "runtime/capture_mode.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

Status CudaArguments::ask(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
                          cudaStream_t stream) {
  const RelaxedCapture relaxed;
  NL_TRY(relaxed.status());
  NL_TRY(ask_buffer("send", "the end of send", send, send_bytes));
  NL_TRY(ask_buffer("recv", "the end of recv", recv, recv_bytes));
  if (always_ || !seen(stream)) NL_TRY(ask_stream(stream));
  if (send != nullptr) remember(send);
  if (recv != nullptr) remember(recv);
  return {};
}

Status CudaArguments::check(std::span<const NamedBuffer> buffers, cudaStream_t stream) {
  bool known = !always_ && seen(stream);
  for (const NamedBuffer& buffer : buffers) known = known && seen(buffer.data);
  if (known) return {};
  const RelaxedCapture relaxed;
  NL_TRY(relaxed.status());
  for (const NamedBuffer& buffer : buffers)
    NL_TRY(ask_buffer(buffer.name, buffer.end_name, buffer.data, buffer.bytes));
  if (always_ || !seen(stream)) NL_TRY(ask_stream(stream));
  for (const NamedBuffer& buffer : buffers) {
    if (buffer.data != nullptr) remember(buffer.data);
  }
  return {};
}

Status CudaArguments::ask_buffer(const char* name, const char* end_name, const void* pointer,
                                 std::size_t bytes) const {
  if (pointer == nullptr) return {};
  NL_TRY(ask_pointer(name, pointer));
  return always_ ? ask_pointer(end_name, static_cast<const char*>(pointer) + bytes - 1) : Status();
}

Status CudaArguments::ask_pointer(const char* name, const void* pointer) const {
  cudaPointerAttributes attributes{};
  NL_TRY_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
      if (attributes.device == device_) return {};
      return failure(Code::invalid_argument, "%s (%p) is memory of device %d, this rank is on device %d",
                     name, pointer, attributes.device, device_);
    case cudaMemoryTypeManaged:
    case cudaMemoryTypeHost:
      return {};
    default:
      break;
  }
  // Plain memory of the process; some GPUs can reach it.
  int reachable = 0;
  NL_TRY_CUDA(cudaDeviceGetAttribute(&reachable, cudaDevAttrPageableMemoryAccess, device_));
  if (reachable != 0) return {};
  return failure(Code::invalid_argument, "%s (%p) is no memory that device %d can reach", name, pointer,
                 device_);
}

Status CudaArguments::ask_stream(cudaStream_t stream) {
  // The default streams are the current device's.
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return {};
  // A stream that captures may not be asked, and asking would spoil the capture: the next call that does not
  // asks.
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  NL_TRY_CUDA(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) return {};
  int device = 0;
  NL_TRY_CUDA(cudaStreamGetDevice(stream, &device));
  if (device == device_) {
    remember(stream);
    return {};
  }
  return failure(Code::invalid_argument, "stream (%p) is of device %d, this rank is on device %d",
                 static_cast<void*>(stream), device, device_);
}

}  // namespace nearlight::runtime
