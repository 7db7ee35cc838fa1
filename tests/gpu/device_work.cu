#include "tests/gpu/device_work.hpp"

#include <nearlight/detail/exec/cuda_space.cuh>

namespace nearlight::test {

namespace {

using exec::CtaCoop;

constexpr int kCtas = 8;
constexpr int kThreads = 256;

NL_FN std::uint64_t first_index() {
  return std::uint64_t{exec::cta_index()} * static_cast<std::uint64_t>(CtaCoop{}.size()) +
         static_cast<std::uint64_t>(CtaCoop{}.thread_rank());
}
NL_FN std::uint64_t index_step() {
  return std::uint64_t{exec::cta_count()} * static_cast<std::uint64_t>(CtaCoop{}.size());
}

NL_FN void put(void* data, DataType type, std::uint64_t index, std::uint32_t bits) {
  if (type == DataType::bf16) {
    static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(bits);
  } else {
    static_cast<std::uint32_t*>(data)[index] = bits;
  }
}
NL_FN std::uint32_t get(const void* data, DataType type, std::uint64_t index) {
  return type == DataType::bf16 ? static_cast<const std::uint16_t*>(data)[index]
                                : static_cast<const std::uint32_t*>(data)[index];
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

NL_FN void complain(Report* report, const Work& work, What what, std::uint64_t index, std::uint32_t expected,
                    std::uint32_t got) {
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
    const std::uint8_t got = *guard_at(data, bytes, static_cast<std::uint32_t>(i));
    if (got != expected) complain(report, work, What::guard, i, expected, got);
  }
}

NL_FN Pattern pattern_of(const Work& work) {
  Pattern pattern = work.pattern;
  if (work.counter != nullptr) pattern.seed += *work.counter;
  return pattern;
}

__global__ void prepare_kernel(const __grid_constant__ Work work) {
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

__global__ void check_kernel(const __grid_constant__ Work work, Report* report) {
  const Pattern pattern = pattern_of(work);
  const std::uint64_t bytes = work.count * element_bytes(pattern.type);
  const bool in_place = work.send == work.recv;
  for (std::uint64_t i = first_index(); i < work.count; i += index_step()) {
    const std::uint32_t expected = expected_bits(pattern, work.nranks, i);
    const std::uint32_t got = get(work.recv, pattern.type, i);
    if (!same_value(pattern.type, expected, got)) complain(report, work, What::output, i, expected, got);
    if (in_place) continue;
    const std::uint32_t input = value_bits(pattern, work.rank, work.nranks, i);
    const std::uint32_t now = get(work.send, pattern.type, i);
    if (input != now) complain(report, work, What::input, i, input, now);
  }
  check_guards(work, work.recv, bytes, report);
  if (!in_place) check_guards(work, work.send, bytes, report);
  if (first_index() == 0) atomicAdd(reinterpret_cast<unsigned long long*>(&report->checks), 1ull);
}

__global__ void check_untouched_kernel(const __grid_constant__ Work work, Report* report) {
  const std::uint32_t expected = poison_bits(work.pattern.type);
  for (std::uint64_t i = first_index(); i < work.count; i += index_step()) {
    const std::uint32_t got = get(work.recv, work.pattern.type, i);
    if (got != expected) complain(report, work, What::untouched, i, expected, got);
  }
  check_guards(work, work.recv, work.count * element_bytes(work.pattern.type), report);
  if (first_index() == 0) atomicAdd(reinterpret_cast<unsigned long long*>(&report->checks), 1ull);
}

__global__ void advance_kernel(std::uint64_t* counter) { *counter += 1; }

__global__ void hold_kernel(std::uint64_t ns) {
  const std::uint64_t start = exec::CudaSpace::now_ns();
  while (exec::CudaSpace::now_ns() - start < ns) continue;
}

}  // namespace

cudaError_t prepare(const Work& work, cudaStream_t stream) {
  prepare_kernel<<<kCtas, kThreads, 0, stream>>>(work);
  return cudaGetLastError();
}

cudaError_t check(const Work& work, Report* report, cudaStream_t stream) {
  check_kernel<<<kCtas, kThreads, 0, stream>>>(work, report);
  return cudaGetLastError();
}

cudaError_t check_untouched(const Work& work, Report* report, cudaStream_t stream) {
  check_untouched_kernel<<<kCtas, kThreads, 0, stream>>>(work, report);
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

}  // namespace nearlight::test
