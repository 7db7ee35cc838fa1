#include "tests/gpu/storm_gpu_calls.hpp"

#include <chrono>

#include "algorithm/one_shot.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test::gpu_storm {

using route::Algorithm;
using route::Protocol;
using std::chrono::milliseconds;

Plan plan_of(const GpuStorm& storm) {
  Random random(storm.seed, 0);
  // Drawn even where it is given, so that the rest is the same then.
  const int chosen = random.one_of({2, 2, 2, 3, 4, 4, 8});
  Plan plan;
  plan.setup.gpus = storm.gpus;
  plan.setup.ranks = storm.windows ? storm.gpus : storm.ranks != 0 ? storm.ranks : chosen;
  plan.setup.memory = storm.windows ? Memory::nccl_window : Memory::cuda_vmm;
  plan.options = test_options();
  plan.options.slots = random.one_of({0u, 512u, 1024u});
  plan.options.chunk_bytes = random.one_of({0u, 16u * 64, 16u * 1024});
  plan.options.packets = random.one_of({0u, 32u, 96u, 1024u});
  plan.options.max_ctas = random.one_of({0u, 0u, 3u});
  // Across the wrap of the epoch, now and then.
  plan.options.initial_epoch = random.one_of({0u, 0u, 0xfffff000u, 0xffffffc0u});
  plan.options.check = random.one_in(6);
  if (storm.plant == GpuStorm::Plant::stays_away) plan.options.timeout = patient(milliseconds(500));
  return plan;
}

namespace {

// Between any two, and from ranks to themselves.
Call any_messages(Random& random, int nranks, bool hops) {
  const auto any_rank = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(nranks))); };
  Call call;
  call.hops = hops;
  call.messages.resize(1 + random.below(kMostMessages));
  for (Message& message : call.messages) {
    message.from = any_rank();
    message.to = any_rank();
    message.pattern = {random.one_of(kDataTypes), ReduceOp::sum, Values::general, random.below(1'000'000)};
    const std::uint64_t most = std::uint64_t{16} << random.below(random.one_in(8) ? 13 : 10);  // bytes
    message.count = random.one_in(20) ? 0 : random.below(most) / element_bytes(message.pattern.type) + 1;
  }
  const std::uint64_t choice = random.below(4);
  if (choice < 2) call.options.protocol = choice == 0 ? Protocol::ll : Protocol::simple;
  if (choice == 2) call.options.grid = 1 + static_cast<std::uint32_t>(random.below(3));
  return call;
}

}  // namespace

Call any_call(Random& random, const GpuStorm& storm, const Group& group, bool in_graph) {
  constexpr Protocol kEveryGpus[] = {Protocol::ll, Protocol::simple, Protocol::sentinel};
  Call call;
  call.hops = random.one_in(12);
  call.barrier = random.one_in(12);
  if (!call.barrier && random.one_in(8)) return any_messages(random, group.nranks(), call.hops);
  call.pattern = {random.one_of(kDataTypes), random.one_of(kReduceOps), Values::general,
                  random.below(1'000'000)};
  // What inference lives on, and has kernels of its own, more often.
  if (random.one_in(2)) {
    call.pattern.type = random.one_of({DataType::bf16, DataType::f32});
    call.pattern.op = ReduceOp::sum;
  }
  const std::uint64_t most = std::uint64_t{16} << random.below(random.one_in(16) ? 15 : 11);  // bytes
  call.count = random.one_in(20) ? 0 : random.below(most) / element_bytes(call.pattern.type) + 1;
  const std::uint64_t choice = random.below(8);
  if (choice < 3) call.options.protocol = kEveryGpus[choice];
  if (choice == 3 && group.takes(Protocol::ll128)) call.options.protocol = Protocol::ll128;
  if (call.options.protocol && !algorithm::carries(*call.options.protocol, call.pattern.type))
    call.options.protocol.reset();
  if (choice == 4) call.options.algorithm = Algorithm::two_shot;
  if (choice == 5 && storm.staged && random.one_in(in_graph ? 8 : 4)) {
    call.options.algorithm = Algorithm::staged;
  } else if (choice == 6 && call.pattern.type == DataType::f32 && call.pattern.op == ReduceOp::sum) {
    using algorithm::DelayPoint;
    constexpr DelayPoint kPoints[] = {DelayPoint::before_publish, DelayPoint::after_arrival,
                                      DelayPoint::after_read};
    call.options.delay_point = static_cast<std::uint32_t>(random.one_of(kPoints));
  } else if (choice == 7) {
    call.options.grid = 1 + static_cast<std::uint32_t>(random.below(3));
  }
  return call;
}

}  // namespace nearlight::test::gpu_storm
