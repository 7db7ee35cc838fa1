#include "tests/api/fake_cuda.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/cuda/barrier.hpp"
#include "algorithm/cuda/clock.hpp"
#include "algorithm/cuda/full_stop.hpp"
#include "algorithm/cuda/fused.hpp"
#include "algorithm/cuda/gemv.hpp"
#include "algorithm/cuda/host_turn.hpp"
#include "algorithm/cuda/messages.hpp"
#include "algorithm/cuda/parts.hpp"
#include "base/fault_point.hpp"
#include "probe/line_test.hpp"
#include "runtime/calibration.hpp"

namespace nearlight::test::fake_cuda {

namespace {

struct Block {
  std::size_t bytes;
  int device;  // -1: pinned host memory
};

struct UserObject {
  void* held;
  cudaHostFn_t destroy;
};

struct State {
  std::mutex mutex;
  // Counted in place, so that a call allocates nothing: name -> count, for names seen before.
  std::map<std::string, int, std::less<>> calls;
  std::map<const char*, Block, std::less<>> blocks;
  int until_failure = -1;
  std::string failed;
  int objects = 0;
  bool keeps_graphs = false;
  std::vector<UserObject*> retained;  // by graphs that are kept
};

State& state() {
  static auto& the_state = *new State;
  return the_state;
}

thread_local int device = 0;
thread_local Launch last_launch{};
std::atomic<std::size_t> shared_bytes[kDevices] = {227 << 10, 227 << 10};
std::atomic<bool> large_products{false};

// The mutex is held.
cudaError_t count(State& all, const char* name) {
  const auto found = all.calls.find(std::string_view(name));
  if (found != all.calls.end()) {
    ++found->second;
  } else {
    all.calls.emplace(name, 1);
  }
  if (all.until_failure < 0 || all.until_failure-- != 0) return cudaSuccess;
  all.failed = name;
  return cudaErrorUnknown;
}

cudaError_t count(const char* name) {
  const std::lock_guard lock(state().mutex);
  return count(state(), name);
}

cudaError_t allocate(const char* name, void** out, std::size_t bytes, int on) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = count(state(), name); error != cudaSuccess) return error;
  *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*out == nullptr) return cudaErrorMemoryAllocation;
  state().blocks.emplace(static_cast<const char*>(*out), Block{bytes, on});
  return cudaSuccess;
}

cudaError_t release(const char* name, void* memory) {
  const std::lock_guard lock(state().mutex);
  const cudaError_t error = count(state(), name);
  state().blocks.erase(static_cast<const char*>(memory));
  std::free(memory);
  return error;
}

Stream* of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }
bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

void destroy_object(UserObject* object) {
  object->destroy(object->held);  // without the mutex: it must call nothing of CUDA's, and would be counted
  delete object;
  const std::lock_guard lock(state().mutex);
  --state().objects;
}

}  // namespace

std::map<std::string, int> calls() {
  const std::lock_guard lock(state().mutex);
  std::map<std::string, int> made;
  for (const auto& [name, count] : state().calls) {
    if (count > 0) made.emplace(name, count);
  }
  return made;
}
void reset_calls() {
  const std::lock_guard lock(state().mutex);
  for (auto& [name, count] : state().calls) count = 0;  // the names stay: counting again allocates nothing
}
void fail_call(int n) {
  const std::lock_guard lock(state().mutex);
  state().until_failure = n;
  state().failed.clear();
}
std::string failed_call() {
  const std::lock_guard lock(state().mutex);
  return state().failed;
}
int live() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().blocks.size()) + state().objects;
}
void keep_graphs(bool keep) {
  std::vector<UserObject*> gone;
  {
    const std::lock_guard lock(state().mutex);
    state().keeps_graphs = keep;
    if (!keep) gone.swap(state().retained);
  }
  for (UserObject* const object : gone) destroy_object(object);
}
int current_device() { return device; }
void give_shared(int of_device, std::size_t bytes) { shared_bytes[of_device] = bytes; }
bool loaded_large_products() { return large_products; }
Launch launched() { return last_launch; }

}  // namespace nearlight::test::fake_cuda

using namespace nearlight::test::fake_cuda;  // NOLINT: the functions below are CUDA's

extern "C" {
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "planted error";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count_out) {
  *count_out = kDevices;
  return count("cudaGetDeviceCount");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int of_device) {
  *properties = {};
  properties->multiProcessorCount = 8;
  properties->major = 9;
  properties->sharedMemPerBlockOptin = shared_bytes[of_device];
  properties->uuid.bytes[0] = static_cast<char>(of_device);
  return count("cudaGetDeviceProperties");
}
cudaError_t cudaGetDevice(int* out) {
  *out = device;
  return count("cudaGetDevice");
}
cudaError_t cudaSetDevice(int to) {
  const cudaError_t error = count("cudaSetDevice");
  if (error == cudaSuccess) device = to;
  return error;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;  // none that a test wants is there
  return count("cudaDeviceGetAttribute");
}
cudaError_t cudaMalloc(void** out, std::size_t bytes) { return allocate("cudaMalloc", out, bytes, device); }
cudaError_t cudaFree(void* memory) { return release("cudaFree", memory); }
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned int) {
  return allocate("cudaHostAlloc", out, bytes, -1);
}
cudaError_t cudaFreeHost(void* memory) { return release("cudaFreeHost", memory); }
cudaError_t cudaHostGetDevicePointer(void** out, void* host, unsigned int) {
  *out = host;
  return count("cudaHostGetDevicePointer");
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const cudaError_t error = count("cudaMemcpy");
  if (error == cudaSuccess) std::memcpy(to, from, bytes);
  return error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  const cudaError_t error = count("cudaMemcpyAsync");
  if (error == cudaSuccess) std::memcpy(to, from, bytes);
  return error;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const cudaError_t error = count("cudaMemset");
  if (error == cudaSuccess) std::memset(to, value, bytes);
  return error;
}
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  const cudaError_t error = count("cudaMemset2D");
  for (std::size_t row = 0; error == cudaSuccess && row < height; ++row)
    std::memset(static_cast<char*>(to) + row * pitch, value, width);
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return count("cudaStreamSynchronize"); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned int) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = count(state(), "cudaEventCreateWithFlags"); error != cudaSuccess)
    return error;
  *out = reinterpret_cast<cudaEvent_t>(new bool(false));
  ++state().objects;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(state().mutex);
  delete reinterpret_cast<bool*>(event);
  --state().objects;
  return count(state(), "cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *reinterpret_cast<bool*>(event) = !is_default(stream) && of(stream)->busy;
  return count("cudaEventRecord");
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t error = count("cudaEventQuery");
  return error == cudaSuccess && *reinterpret_cast<bool*>(event) ? cudaErrorNotReady : error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) {
  return count("cudaStreamWaitEvent");
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  const bool own = !is_default(stream) && of(stream)->id != 0;
  *id = own ? of(stream)->id : reinterpret_cast<unsigned long long>(stream);
  return count("cudaStreamGetId");
}
cudaError_t cudaDeviceSynchronize() { return count("cudaDeviceSynchronize"); }
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* out) {
  // As CUDA does: the question spoils a capture.
  if (of(stream)->capture != 0) return cudaErrorStreamCaptureUnsupported;
  *out = of(stream)->device;
  return count("cudaStreamGetDevice");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = of(stream)->capture != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return count("cudaStreamIsCapturing");
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return count("cudaThreadExchangeStreamCaptureMode");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(state().mutex);
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  const auto* const address = static_cast<const char*>(pointer);
  auto block = state().blocks.upper_bound(address);
  if (block != state().blocks.begin()) {
    --block;
    if (address < block->first + block->second.bytes) {
      attributes->type = block->second.device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
      attributes->device = block->second.device;
    }
  }
  return count(state(), "cudaPointerGetAttributes");
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
  const unsigned long long capture = is_default(stream) ? 0 : of(stream)->capture;
  *status = capture != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *id = capture;
  if (graph != nullptr) *graph = nullptr;
  return count("cudaStreamGetCaptureInfo");
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* held, cudaHostFn_t destroy, unsigned int,
                                 unsigned int) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = count(state(), "cudaUserObjectCreate"); error != cudaSuccess) return error;
  *out = reinterpret_cast<cudaUserObject_t>(new UserObject{held, destroy});
  ++state().objects;
  return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int) {
  const cudaError_t error = count("cudaUserObjectRelease");
  destroy_object(reinterpret_cast<UserObject*>(object));
  return error;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t object, unsigned int, unsigned int) {
  {
    const std::lock_guard lock(state().mutex);
    if (const cudaError_t error = count(state(), "cudaGraphRetainUserObject"); error != cudaSuccess)
      return error;
    if (state().keeps_graphs) {
      state().retained.push_back(reinterpret_cast<UserObject*>(object));
      return cudaSuccess;
    }
  }
  static_cast<void>(cudaUserObjectRelease(object, 1));
  return cudaSuccess;
}
}

namespace nearlight::algorithm::cuda {

Status launch(const AllReduceArgs& args, const LaunchShape& shape, cudaStream_t) {
  last_launch = {args.op, args.factor, shape.grid, args.late};
  if (count("launch") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch: planted error");
}
Status load(const AllReduceArgs&, const LaunchShape&) { return {}; }
Status launch_alone(const AllReduceArgs& args, DataType type, std::uint32_t max_ctas, cudaStream_t) {
  last_launch = {args.op, args.factor, max_ctas, args.late};
  if (count("launch_alone") != cudaSuccess) return failure(Code::cuda_error, "launch_alone: planted error");
  if (type == DataType::u8 && args.factor == 1) std::memmove(args.recv, args.send, args.count);
  return {};
}
Status launch_barrier(const AllReduceArgs& args, cudaStream_t) {
  last_launch = {ReduceOp::sum, 0, 1, args.late};
  if (count("launch_barrier") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_barrier: planted error");
}
Status launch_parts(const PartsArgs& args, const PartsShape& shape, cudaStream_t) {
  last_launch = {args.all.op, args.all.factor, shape.grid, args.all.late};
  if (count("launch_parts") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_parts: planted error");
}
Status preload_parts() {
  if (count("preload_parts") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_parts: planted error");
}
Status preload_traced_parts() {
  if (count("preload_traced_parts") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_traced_parts: planted error");
}
Status launch_messages(const MessagesHead& head, const Message*, std::uint32_t, std::uint32_t lanes,
                       cudaStream_t) {
  last_launch = {ReduceOp::sum, head.queue_count, lanes, head.all.late};
  if (count("launch_messages") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_messages: planted error");
}
Status preload_messages() {
  if (count("preload_messages") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_messages: planted error");
}
Status launch_fused(const FusedArgs& args, const FusedShape& shape, cudaStream_t) {
  last_launch = {args.all.op, args.all.factor, shape.grid, args.all.late};
  if (count("launch_fused") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_fused: planted error");
}
Status preload_fused() {
  if (count("preload_fused") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_fused: planted error");
}
Status preload_traced_messages() {
  if (count("preload_traced_messages") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_traced_messages: planted error");
}
Status preload_traced_fused() {
  if (count("preload_traced_fused") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_traced_fused: planted error");
}
Status launch_gemv(const GemvArgs& args, const GemvShape& shape, cudaStream_t) {
  last_launch = {args.all.op, args.all.factor, shape.grid, args.all.late};
  if (count("launch_gemv") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_gemv: planted error");
}
Status preload_gemv(bool large_shared) {
  large_products = large_shared;
  if (count("preload_gemv") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_gemv: planted error");
}
Status preload_traced_gemv(bool) {
  if (count("preload_traced_gemv") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_traced_gemv: planted error");
}
Status preload_barrier() {
  if (count("preload_barrier") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_barrier: planted error");
}
// What the kernel does, at once: the call returns when the host has answered.
Status launch_host_turn(HostTurnWords* turn, const HostRequest& request, std::uint64_t limit_ns,
                        cudaStream_t stream) {
  if (count("launch_host_turn") != cudaSuccess)
    return failure(Code::cuda_error, "launch_host_turn: planted error");
  if (is_default(stream) || of(stream)->capture == 0)
    take_host_turn<exec::HostSpace>(*turn, request, limit_ns);
  return {};
}
Status preload_host_turn() {
  if (count("preload_host_turn") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_host_turn: planted error");
}
Status launch_full_stop(cudaStream_t) {
  if (count("launch_full_stop") == cudaSuccess) return {};
  return failure(Code::cuda_error, "launch_full_stop: planted error");
}
Status preload_full_stop() {
  if (count("preload_full_stop") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_full_stop: planted error");
}
Status preload() {
  if (count("preload") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload: planted error");
}

Status preload_clock() {
  if (count("preload_clock") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_clock: planted error");
}
Status launch_clock(std::uint64_t* to, cudaStream_t) {
  if (count("launch_clock") != cudaSuccess) return failure(Code::cuda_error, "launch_clock: planted error");
  static std::uint64_t time_ns = 0;
  *to = ++time_ns;
  return {};
}
Status preload_traced() {
  if (count("preload_traced") == cudaSuccess) return {};
  return failure(Code::cuda_error, "preload_traced: planted error");
}

}  // namespace nearlight::algorithm::cuda

// Between the devices lies nothing of which lines would be tested.
namespace nearlight::probe {

PathFacts path_facts(int, const char (&)[16]) { return {}; }
Status load_line_test() { return failure(Code::internal_error, "not to be called"); }
Result<LineTestResult> run_line_test(const LineTest&) {
  return failure(Code::internal_error, "not to be called");
}

}  // namespace nearlight::probe

namespace nearlight::runtime {

// There is no time to measure.
Result<route::Placement> calibrate(Exchange& exchange, int, const algorithm::cuda::AllReduceArgs&,
                                   std::uint32_t, Deadline deadline) {
  NL_TRY(agree(exchange, fault_points::pass(fault_points::kCudaCalibrate), deadline));
  return route::Placement("no GPU");
}

}  // namespace nearlight::runtime
