#include "tests/gpu/device_work.hpp"

#include <nearlight/detail/exec/cuda_space.cuh>

namespace nearlight::test {

namespace {

using exec::CtaCoop;

constexpr int kCtas = 8;
constexpr int kThreads = 256;
constexpr int kFullThreads = 1024;  // of two CTAs on an SM, which are all that it takes

NL_FN std::uint64_t first_index() {
  return std::uint64_t{exec::cta_index()} * static_cast<std::uint64_t>(CtaCoop{}.size()) +
         static_cast<std::uint64_t>(CtaCoop{}.thread_rank());
}
NL_FN std::uint64_t index_step() {
  return std::uint64_t{exec::cta_count()} * static_cast<std::uint64_t>(CtaCoop{}.size());
}

NL_FN void put(void* data, DataType type, std::uint64_t index, std::uint64_t bits) {
  switch (element_bytes(type)) {
    case 1:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(bits);
      break;
    case 2:
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(bits);
      break;
    case 4:
      static_cast<std::uint32_t*>(data)[index] = static_cast<std::uint32_t>(bits);
      break;
    default:
      static_cast<std::uint64_t*>(data)[index] = bits;
  }
}
// From L2: under programmatic dependent launch the first cache may hold what was there before.
NL_FN std::uint64_t get(const void* data, DataType type, std::uint64_t index) {
  using S = exec::CudaSpace;
  switch (element_bytes(type)) {
    case 1:
      return S::load_element(static_cast<const std::uint8_t*>(data) + index);
    case 2:
      return S::load_element(static_cast<const std::uint16_t*>(data) + index);
    case 4:
      return S::load_element(static_cast<const std::uint32_t*>(data) + index);
    default:
      return S::load_element(static_cast<const std::uint64_t*>(data) + index);
  }
}

NL_FN std::uint8_t* guard_at(void* data, std::uint64_t bytes, std::uint32_t position) {
  auto* const first = static_cast<std::uint8_t*>(data);
  return position < kGuardBytes ? first - kGuardBytes + position : first + bytes + (position - kGuardBytes);
}

NL_FN void put_guards(void* data, std::uint64_t bytes) {
  for (std::uint64_t i = first_index(); i < 2 * kGuardBytes; i += index_step()) {
    *guard_at(data, bytes, static_cast<std::uint32_t>(i)) = guard_byte(static_cast<std::uint32_t>(i));
  }
}

NL_FN void complain(Report* report, const Work& work, What what, std::uint64_t index, std::uint64_t expected,
                    std::uint64_t got) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&report->wrong), 1ull);
  if (atomicCAS(&report->taken, 0u, 1u) != 0u) return;
  report->index = index;
  report->case_id = work.case_id;
  report->what = static_cast<std::uint32_t>(what);
  report->expected = expected;
  report->got = got;
}

NL_FN void check_guards(const Work& work, void* data, std::uint64_t bytes, Report* report) {
  for (std::uint64_t i = first_index(); i < 2 * kGuardBytes; i += index_step()) {
    const std::uint8_t expected = guard_byte(static_cast<std::uint32_t>(i));
    const std::uint8_t got =
        *static_cast<volatile std::uint8_t*>(guard_at(data, bytes, static_cast<std::uint32_t>(i)));
    if (got != expected) complain(report, work, What::guard, i, expected, got);
  }
}

NL_FN Pattern pattern_of(const Work& work) {
  Pattern pattern = work.pattern;
  if (work.counter != nullptr) pattern.seed += *static_cast<const volatile std::uint64_t*>(work.counter);
  return pattern;
}

NL_FN void prepare_body(const Work& work) {
  const Pattern pattern = pattern_of(work);
  const std::uint64_t bytes = work.count * element_bytes(pattern.type);
  const bool in_place = work.send == work.recv;
  for (std::uint64_t i = first_index(); i < work.count; i += index_step()) {
    put(work.send, pattern.type, i, value_bits(pattern, work.rank, work.nranks, i));
    if (!in_place) put(work.recv, pattern.type, i, poison_bits(pattern.type));
  }
  put_guards(work.send, bytes);
  if (!in_place) put_guards(work.recv, bytes);
}

template <bool overwrite>
NL_FN void check_body(const Work& work, Report* report) {
  const Pattern pattern = pattern_of(work);
  const std::uint64_t bytes = work.count * element_bytes(pattern.type);
  const bool in_place = work.send == work.recv;
  for (std::uint64_t i = first_index(); i < work.count; i += index_step()) {
    const std::uint64_t expected = expected_bits(pattern, work.nranks, i);
    const std::uint64_t got = get(work.recv, pattern.type, i);
    if (expected != got) complain(report, work, What::output, i, expected, got);
    if (in_place) {
      if (overwrite) put(work.send, pattern.type, i, ~got);
      continue;
    }
    const std::uint64_t input = value_bits(pattern, work.rank, work.nranks, i);
    const std::uint64_t now = get(work.send, pattern.type, i);
    if (input != now) complain(report, work, What::input, i, input, now);
    if (overwrite) put(work.send, pattern.type, i, ~now);
  }
  check_guards(work, work.recv, bytes, report);
  if (!in_place) check_guards(work, work.send, bytes, report);
  if (first_index() == 0) atomicAdd(reinterpret_cast<unsigned long long*>(&report->checks), 1ull);
}

__global__ void prepare_kernel(const __grid_constant__ Work work) { prepare_body(work); }
__global__ void check_kernel(const __grid_constant__ Work work, Report* report) {
  check_body<false>(work, report);
}

NL_FN void hold_for(std::uint64_t ns) {
  const std::uint64_t start = exec::CudaSpace::now_ns();
  while (exec::CudaSpace::now_ns() - start < ns) continue;
}

__global__ void prepare_late_kernel(const __grid_constant__ Work work, std::uint64_t late_ns) {
  exec::allow_dependent_launch();
  exec::wait_for_previous_kernel();
  hold_for(late_ns);
  prepare_body(work);
}
__global__ void check_and_overwrite_kernel(const __grid_constant__ Work work, Report* report) {
  exec::allow_dependent_launch();
  exec::wait_for_previous_kernel();
  check_body<true>(work, report);
}
__global__ void advance_early_kernel(std::uint64_t* counter) {
  exec::allow_dependent_launch();
  exec::wait_for_previous_kernel();
  *static_cast<volatile std::uint64_t*>(counter) = *static_cast<volatile std::uint64_t*>(counter) + 1;
}

__global__ void wait_everywhere_kernel() { exec::wait_for_previous_kernel(); }

__global__ void check_untouched_kernel(const __grid_constant__ Work work, Report* report) {
  const std::uint64_t expected = poison_bits(work.pattern.type);
  for (std::uint64_t i = first_index(); i < work.count; i += index_step()) {
    const std::uint64_t got = get(work.recv, work.pattern.type, i);
    if (got != expected) complain(report, work, What::untouched, i, expected, got);
  }
  check_guards(work, work.recv, work.count * element_bytes(work.pattern.type), report);
  if (first_index() == 0) atomicAdd(reinterpret_cast<unsigned long long*>(&report->checks), 1ull);
}

__global__ void advance_kernel(std::uint64_t* counter) { *counter += 1; }

__global__ void hold_kernel(std::uint64_t ns) { hold_for(ns); }

__device__ unsigned int arrived;  // CTAs of occupy_kernel; the last one to leave puts it back to 0
__device__ unsigned int left;

// All CTAs are there together, so that each SM is full, before those of the spare ones leave.
__global__ void __launch_bounds__(kFullThreads)
    occupy_kernel(std::uint32_t spare, std::uint32_t* words, std::uint64_t limit_ns) {
  using S = exec::CudaSpace;
  if (CtaCoop{}.thread_rank() == 0) {
    const unsigned int all = exec::cta_count();
    const std::uint64_t start = S::now_ns();
    const auto in_time = [&] { return S::now_ns() - start < limit_ns; };
    if (atomicAdd(&arrived, 1u) + 1 == all) {
      S::store<exec::Order::release, exec::Scope::system>(words[1], 1);
    }
    while (atomicAdd(&arrived, 0u) < all && in_time()) continue;
    if (exec::sm_id() >= spare) {
      while (S::load<exec::Order::acquire, exec::Scope::system>(words[0]) == 0 && in_time()) continue;
    }
    if (atomicAdd(&left, 1u) + 1 == all) {
      atomicExch(&arrived, 0u);
      atomicExch(&left, 0u);
    }
  }
  CtaCoop{}.sync();
}

template <class... Parameters, class... Arguments>
cudaError_t launch_dependent(void (*kernel)(Parameters...), int ctas, int threads, cudaStream_t stream,
                             Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Few CTAs, so that there is always room; more where the data are many.
int ctas_for(const Work& work) { return work.count > (std::uint64_t{1} << 24) ? 64 : kCtas; }

}  // namespace

cudaError_t preload_device_work() {
  for (const void* const kernel :
       {reinterpret_cast<const void*>(prepare_kernel), reinterpret_cast<const void*>(check_kernel),
        reinterpret_cast<const void*>(check_untouched_kernel), reinterpret_cast<const void*>(advance_kernel),
        reinterpret_cast<const void*>(hold_kernel), reinterpret_cast<const void*>(occupy_kernel),
        reinterpret_cast<const void*>(prepare_late_kernel),
        reinterpret_cast<const void*>(check_and_overwrite_kernel),
        reinterpret_cast<const void*>(advance_early_kernel),
        reinterpret_cast<const void*>(wait_everywhere_kernel)}) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

cudaError_t prepare(const Work& work, cudaStream_t stream) {
  prepare_kernel<<<ctas_for(work), kThreads, 0, stream>>>(work);
  return cudaGetLastError();
}

cudaError_t check(const Work& work, Report* report, cudaStream_t stream) {
  check_kernel<<<ctas_for(work), kThreads, 0, stream>>>(work, report);
  return cudaGetLastError();
}

cudaError_t check_untouched(const Work& work, Report* report, cudaStream_t stream) {
  check_untouched_kernel<<<ctas_for(work), kThreads, 0, stream>>>(work, report);
  return cudaGetLastError();
}

cudaError_t advance(std::uint64_t* counter, cudaStream_t stream) {
  advance_kernel<<<1, 1, 0, stream>>>(counter);
  return cudaGetLastError();
}

cudaError_t hold(std::uint64_t ns, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

cudaError_t occupy(std::uint32_t spare, std::uint32_t* words, std::uint64_t limit_ns, cudaStream_t stream) {
  int device = 0, sms = 0, threads = 0;
  for (const cudaError_t error :
       {cudaGetDevice(&device), cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
        cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device)}) {
    if (error != cudaSuccess) return error;
  }
  occupy_kernel<<<static_cast<unsigned>(sms * (threads / kFullThreads)), kFullThreads, 0, stream>>>(
      spare, words, limit_ns);
  return cudaGetLastError();
}

cudaError_t prepare_late(const Work& work, std::uint64_t late_ns, cudaStream_t stream) {
  return launch_dependent(prepare_late_kernel, kCtas, kThreads, stream, work, late_ns);
}

cudaError_t check_and_overwrite(const Work& work, Report* report, cudaStream_t stream) {
  return launch_dependent(check_and_overwrite_kernel, kCtas, kThreads, stream, work, report);
}

cudaError_t wait_everywhere(cudaStream_t stream) {
  constexpr int kSmall = 64;  // threads: what others leave free of an SM is filled, too
  int device = 0, sms = 0, threads = 0;
  for (const cudaError_t error :
       {cudaGetDevice(&device), cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
        cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device)}) {
    if (error != cudaSuccess) return error;
  }
  return launch_dependent(wait_everywhere_kernel, sms * (threads / kSmall), kSmall, stream);
}

cudaError_t advance_early(std::uint64_t* counter, cudaStream_t stream) {
  return launch_dependent(advance_early_kernel, 1, 1, stream, counter);
}

}  // namespace nearlight::test
