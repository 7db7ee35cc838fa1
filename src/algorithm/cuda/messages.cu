// The kernel of sends and receives that go together: a CTA a lane, and of each CTA some warps a queue, so
// that no queue waits for another one.
#include "algorithm/cuda/messages.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/enqueue.hpp"
#include "algorithm/pipe.hpp"
#include "algorithm/traced_turns.hpp"
#include "exec/cuda_span.cuh"

namespace nearlight::algorithm::cuda {

namespace {

static_assert(sizeof(PipeState<CudaSpace>) == sizeof(PipeStateWords));
static_assert(kMostQueues <= exec::kMostSpans);
static_assert(kMaxThreads / 32 >= kMostQueues);

template <bool kTraced>
NL_FN auto hooks_of(const MessagesHead& head, std::uint32_t lane, const PipeQueue& queue,
                    const exec::SpanCoop& coop) {
  if constexpr (kTraced) {
    const std::size_t ring = trace::turn_ring_of(lane, head.all.nranks, queue.peer, queue.sends != 0);
    const bool writes = coop.thread_rank() == 0;
    return TracedTurns<CudaSpace>(head.turns + ring * trace::kTurnLinesOnGpu, trace::kTurnLinesOnGpu, writes,
                                  writes ? CudaSpace::now_ns() : 0);
  } else {
    return NoDelay{};
  }
}

template <std::uint32_t kMost, bool kTraced>
__global__ void __launch_bounds__(kMaxThreads, 1)
    messages_kernel(const __grid_constant__ MessagesArgs<kMost> args) {
  const MessagesHead& head = args.head;
  const AllReduceArgs& all = head.all;
  const std::uint32_t lane = exec::cta_index();
  const std::uint32_t index = exec::SpanCoop::index_of(head.width);
  if (index >= head.queue_count) return;
  const exec::SpanCoop coop(index * head.width, head.width, index);
  const PipeQueue& queue = head.queues[index];
  const FlatPipes<CudaSpace> pipes(all.regions + lane * all.region_bytes, all.stride, all.rank,
                                   protocol::RegionLayout{all.nranks, all.slots, all.cells});
  State& state = reinterpret_cast<State*>(all.states)[lane];
  auto& end_words = reinterpret_cast<PipeState<CudaSpace>*>(
      head.ends)[lane * static_cast<std::uint32_t>(all.nranks) + static_cast<std::uint32_t>(queue.peer)];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(all.late);
  protocol::Session session(pipes, coop, state, control_of(all), lane, all.collective);
  const auto hooks = hooks_of<kTraced>(head, lane, queue, coop);
  PipeEnd<4, NoBulk, decltype(session), std::remove_const_t<decltype(hooks)>> end(
      session, end_words, queue, args.messages, lane, head.told != 0, hooks);
  while (!end.done()) end.turn();
  end.close();
}

// Threads a queue: what the largest turn has work for, at most an even share of a CTA.
std::uint32_t width_of(const Message* messages, std::uint32_t count, std::uint32_t queues) {
  std::uint32_t units = 1;
  for (std::uint32_t i = 0; i < count; ++i) units = std::max(units, messages[i].span);
  const std::uint32_t wanted = (std::min(units, kMaxThreads) + 31) / 32 * 32;
  return std::min(wanted, kMaxThreads / queues / 32 * 32);
}

template <std::uint32_t kMost, bool kTraced = false>
Status launch(const MessagesHead& head, const Message* messages, std::uint32_t count, std::uint32_t lanes,
              cudaStream_t stream) {
  MessagesArgs<kMost> args;
  args.head = head;
  args.head.width = width_of(messages, count, head.queue_count);
  std::memcpy(args.messages, messages, count * sizeof *messages);
  // What is behind them is not looked at, but a parameter is copied as a whole.
  std::memset(static_cast<void*>(args.messages + count), 0, (kMost - count) * sizeof *messages);
  return enqueue(messages_kernel<kMost, kTraced>, args, lanes, args.head.width * head.queue_count, stream);
}

}  // namespace

Status launch_messages(const MessagesHead& head, const Message* messages, std::uint32_t count,
                       std::uint32_t lanes, cudaStream_t stream) {
  if (count <= kFewMessages && head.turns != nullptr)
    return launch<kFewMessages, true>(head, messages, count, lanes, stream);
  if (count <= kFewMessages) return launch<kFewMessages>(head, messages, count, lanes, stream);
  if (count <= kMostMessages) return launch<kMostMessages>(head, messages, count, lanes, stream);
  return failure(Code::unsupported, "%u messages go together, and a kernel takes %u: make smaller groups",
                 count, kMostMessages);
}

Status preload_messages() {
  NL_TRY(load_kernel(messages_kernel<kFewMessages, false>));
  return load_kernel(messages_kernel<kMostMessages, false>);
}
Status preload_traced_messages() { return load_kernel(messages_kernel<kFewMessages, true>); }

}  // namespace nearlight::algorithm::cuda
