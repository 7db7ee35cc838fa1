#include <nearlight/detail/exec/cuda_space.cuh>

#include "probe/gpu_kernels.hpp"

namespace nearlight::probe::gpu {

namespace {

using exec::CudaSpace;
using exec::Order;
using exec::Scope;

constexpr std::uint64_t kLongestStayNs = 1'000'000;
constexpr int kStoreThreads = 512;

// True in the one CTA that is to work, the first on SM `sm`. The others stay until it is found (or for a
// while): CTAs that start after some have left would go where those were, and an SM might be left out.
__device__ bool works_here(Notes* notes, std::uint32_t sm) {
  if (exec::sm_id() == sm && CudaSpace::claim(notes->claimed)) return true;
  protocol::Control<CudaSpace> control;
  control.timeout_ns = kLongestStayNs;
  (void)protocol::poll<CudaSpace>(
      control, [&] { return CudaSpace::load<Order::relaxed, Scope::device>(notes->claimed) != 0; });
  return false;
}

__device__ CudaSpace::Word* word_of(char* first, std::size_t spacing, int line) {
  return reinterpret_cast<CudaSpace::Word*>(first + spacing * static_cast<std::size_t>(line));
}

__global__ void meet_others(std::uint32_t* arrived, std::uint32_t expected, std::uint64_t limit_ns,
                            std::uint64_t* started_ns) {
  *started_ns = CudaSpace::now_ns();
  atomicAdd(arrived, 1u);
  protocol::Control<CudaSpace> control;
  control.timeout_ns = limit_ns;
  (void)protocol::poll<CudaSpace>(
      control, [&] { return CudaSpace::load<Order::relaxed, Scope::device>(*arrived) >= expected; });
}

__global__ void find_sms(Notes* notes) {
  const std::uint32_t sm = exec::sm_id();
  if (sm < kMaxSms) notes->sm_seen[sm] = 1;
}

__global__ void chase_lines(Notes* notes, std::uint32_t sm, Lines lines, Laps laps) {
  if (!works_here(notes, sm)) return;
  for (int line = 0; line < lines.count; ++line) {
    notes->ns[line] = chase<CudaSpace>(word_of(lines.first, lines.spacing, line), laps);
  }
  notes->outcome = Outcome::done;
}

template <Arrival arrival>
__global__ void ping_pong_lines(Notes* notes, std::uint32_t sm, PingPongArgs args) {
  if (!works_here(notes, sm)) return;
  protocol::Control<CudaSpace> control;
  control.timeout_ns = args.timeout_ns;
  for (int line = 0; line < args.mine.count; ++line) {
    std::uint64_t elapsed_ns = 0;
    const protocol::Wait outcome = ping_pong<CudaSpace, arrival>(
        control, *word_of(args.mine.first, args.mine.spacing, line),
        *word_of(args.theirs, args.mine.spacing, line), args.first, args.base, args.laps, elapsed_ns);
    if (outcome != protocol::Wait::ok) {
      notes->outcome = Outcome::timeout;
      return;
    }
    notes->ns[line] = elapsed_ns;
  }
  notes->outcome = Outcome::done;
}

__global__ void __launch_bounds__(kStoreThreads) store_all(char* to, std::size_t vecs) {
  exec::CtaCoop cta;
  const std::size_t threads = static_cast<std::size_t>(cta.size()) * exec::cta_count();
  std::size_t i = static_cast<std::size_t>(exec::cta_index()) * static_cast<std::size_t>(cta.size()) +
                  static_cast<std::size_t>(cta.thread_rank());
  for (; i < vecs; i += threads) {
    CudaSpace::store_cell(reinterpret_cast<CudaSpace::Cell*>(to)[i],
                          exec::Vec{{i, ~static_cast<exec::Pack>(i)}});
  }
}

__global__ void empty() {}

__global__ void empty_dependent() {
  exec::allow_dependent_launch();
  exec::wait_for_previous_kernel();
}

cudaLaunchConfig_t shape(int ctas, int threads, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return config;
}

template <class Kernel>
cudaError_t load(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace

cudaError_t load_kernels() {
  cudaError_t error = load(find_sms);
  if (error == cudaSuccess) error = load(meet_others);
  if (error == cudaSuccess) error = load(chase_lines);
  if (error == cudaSuccess) error = load(ping_pong_lines<Arrival::relaxed>);
  if (error == cudaSuccess) error = load(ping_pong_lines<Arrival::acquire>);
  if (error == cudaSuccess) error = load(ping_pong_lines<Arrival::fence>);
  if (error == cudaSuccess) error = load(store_all);
  if (error == cudaSuccess) error = load(empty);
  if (error == cudaSuccess) error = load(empty_dependent);
  return error;
}

cudaError_t start_find_sms(Notes* notes, int ctas, cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(ctas, 1, stream);
  return cudaLaunchKernelEx(&config, find_sms, notes);
}

cudaError_t start_chase(Notes* notes, int ctas, int sm, Lines lines, Laps laps, cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(ctas, 1, stream);
  return cudaLaunchKernelEx(&config, chase_lines, notes, static_cast<std::uint32_t>(sm), lines, laps);
}

cudaError_t start_ping_pong(Notes* notes, int ctas, int sm, const PingPongArgs& args, cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(ctas, 1, stream);
  const auto number = static_cast<std::uint32_t>(sm);
  switch (args.arrival) {
    case Arrival::acquire:
      return cudaLaunchKernelEx(&config, ping_pong_lines<Arrival::acquire>, notes, number, args);
    case Arrival::fence:
      return cudaLaunchKernelEx(&config, ping_pong_lines<Arrival::fence>, notes, number, args);
    case Arrival::relaxed:
      break;
  }
  return cudaLaunchKernelEx(&config, ping_pong_lines<Arrival::relaxed>, notes, number, args);
}

cudaError_t start_stores(char* to, std::size_t bytes, int ctas, cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(ctas, kStoreThreads, stream);
  return cudaLaunchKernelEx(&config, store_all, to, bytes / sizeof(exec::Vec));
}

cudaError_t start_meeting(std::uint64_t* arrived, std::uint32_t expected, std::uint64_t limit_ns,
                          std::uint64_t* started_ns, cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(1, 1, stream);
  return cudaLaunchKernelEx(&config, meet_others, reinterpret_cast<std::uint32_t*>(arrived), expected,
                            limit_ns, started_ns);
}

cudaError_t start_empty(cudaStream_t stream) {
  const cudaLaunchConfig_t config = shape(1, 32, stream);
  return cudaLaunchKernelEx(&config, empty);
}

cudaError_t start_empty_dependent(cudaStream_t stream) {
  cudaLaunchConfig_t config = shape(1, 32, stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, empty_dependent);
}

}  // namespace nearlight::probe::gpu
