// Calls of GPU ranks that somebody else makes: the attached NCCL, or the CPU.
#include <algorithm>
#include <utility>

#include "algorithm/cuda/full_stop.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/host_communicator.hpp"

namespace nearlight::runtime {

route::Algorithm CudaCommunicator::way() const {
  const route::Forced forced = forced_of(path_.load(std::memory_order_relaxed));
  if (forced.fallback) return nccl_.version != 0 ? route::Algorithm::nccl : route::Algorithm::staged;
  return forced.algorithm.value_or(route::Algorithm::one_shot);
}

Status CudaCommunicator::may_go_elsewhere(route::Algorithm algorithm) const {
  if (!algorithm::is_elsewhere(algorithm)) return status();
  // Told to stop, or a peer is gone: then nobody else's call would end either.
  return stop_note_.first_of_all().status;
}

Status CudaCommunicator::hand_over(const void* send, void* recv, std::size_t count, DataType type,
                                   const Reduction& op, cudaStream_t stream, bool capturing) {
  Status outcome = before_nccl(stream);
  if (outcome.ok()) outcome = give_to_nccl(send, recv, count, type, op, stream, capturing);
  return handed_over(std::move(outcome), stream, capturing);
}

Status CudaCommunicator::hand_over(const CollectiveCall& call, cudaStream_t stream, bool capturing) {
  Status outcome = before_nccl(stream);
  if (outcome.ok())
    outcome = fallback_->collective(call, nranks(), stream, capturing, Deadline::after(timeout_));
  return handed_over(std::move(outcome), stream, capturing);
}

Status CudaCommunicator::before_nccl(cudaStream_t stream) const {
  // Order on the stream. Our kernel after NCCL's waits for its end (griddepcontrol.wait). NCCL's after ours
  // waits for the end of ours where it is launched as usual; what its faulty versions launch otherwise begins
  // once ours has let it, so the full stop, which lets nothing begin early, goes between.
  return route::starts_before_its_input(nccl_.version) ? algorithm::cuda::launch_full_stop(stream) : Status();
}

Status CudaCommunicator::handed_over(Status outcome, cudaStream_t stream, bool capturing) {
  // Of an argument that is wrong nearlight says so itself, and then goes on; this one is past that.
  if (outcome.code() == Code::invalid_argument) outcome = Status(Code::internal_error, outcome.text());
  return made_elsewhere(std::move(outcome), stream, capturing);
}

Status CudaCommunicator::made_elsewhere(Status outcome, cudaStream_t stream, bool capturing) {
  // A capture has an order of its own, and one that is spoilt never runs.
  if (capturing) return outcome;
  if (check_ && outcome.ok()) outcome = stream_order_.after(stream);
  // Whatever was not enqueued the others wait for, inside NCCL or on their CPUs.
  if (!outcome.ok()) stop(outcome, -1);
  return outcome;
}

Status CudaCommunicator::give_to_nccl(const void* send, void* recv, std::size_t count, DataType type,
                                      const Reduction& op, cudaStream_t stream, bool capturing) {
  const std::size_t bytes = count * size_of(type);
  const bool own_buffer = route::needs_own_buffer(nccl_, type, bytes);
  const void* from = send;
  void* to = own_buffer ? control_->buffer() : recv;
  ReduceOp reduce = op.op;
  if (op.op == ReduceOp::premul_sum) {
    // NCCL would need an operator made and kept for each factor: so the product, rounded as ours is, and then
    // a sum.
    NL_TRY(algorithm::cuda::launch_alone(args_of(send, to, count, op, {}), type, max_ctas_, stream));
    from = to;
    reduce = ReduceOp::sum;
  } else if (own_buffer) {
    NL_TRY_CUDA(cudaMemcpyAsync(to, send, bytes, cudaMemcpyDeviceToDevice, stream));
    from = to;
  }
  NL_TRY(fallback_->all_reduce(from, to, count, type, reduce, stream, capturing, Deadline::after(timeout_)));
  if (own_buffer) NL_TRY_CUDA(cudaMemcpyAsync(recv, to, bytes, cudaMemcpyDeviceToDevice, stream));
  return {};
}

Status CudaCommunicator::ask_host(const algorithm::HostRequest& request, cudaStream_t stream) {
  // The host should give up first, since it knows whom it misses: all of its call has the time of one wait of
  // ours. The second is for its thread to find the request, and to say that it has failed.
  constexpr std::uint64_t kGraceNs = 1'000'000'000;
  return algorithm::cuda::launch_host_turn(staged_->turn(), request,
                                           static_cast<std::uint64_t>(timeout_.count()) + kGraceNs, stream);
}

// By a kernel and not by a copy engine, which takes the copies of all streams in turn: one that waits for the
// CPU's answer would hold up those that other ranks of the GPU have to make before the answer can be.
Status CudaCommunicator::copy_by_kernel(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  Reduction once = ReduceOp::premul_sum;
  once.factor = Reduction::Factor{DataType::u8, 1};
  return algorithm::cuda::launch_alone(args_of(from, to, bytes, once, {}), DataType::u8, max_ctas_, stream);
}

Status CudaCommunicator::stage(const void* send, void* recv, std::size_t count, DataType type,
                               const Reduction& op, cudaStream_t stream, bool capturing) {
  NL_TRY(staged_->status());
  const auto enqueue = [&]() -> Status {
    NL_TRY(staged_->start());
    const std::size_t element = size_of(type), most = staged_->bytes() / element;
    algorithm::HostRequest request;
    request.collective = static_cast<std::uint32_t>(Collective::all_reduce);
    request.type = static_cast<std::uint32_t>(type);
    request.op = static_cast<std::uint32_t>(op.op);
    request.factor = op.factor ? op.factor->bits : 0;
    for (std::size_t first = 0; first < count; first += most) {
      const std::size_t here = std::min(most, count - first);
      request.count = here;
      NL_TRY(copy_by_kernel(staged_->staging(), static_cast<const char*>(send) + first * element,
                            here * element, stream));
      NL_TRY(ask_host(request, stream));
      NL_TRY(copy_by_kernel(static_cast<char*>(recv) + first * element, staged_->staging(), here * element,
                            stream));
    }
    return {};
  };
  return made_elsewhere(enqueue(), stream, capturing);
}

Status CudaCommunicator::barrier_elsewhere(route::Algorithm algorithm, cudaStream_t stream, bool capturing) {
  if (algorithm == route::Algorithm::nccl)
    return hand_over(control_->buffer(), control_->buffer(), 1, DataType::i32, ReduceOp::max, stream,
                     capturing);
  NL_TRY(staged_->status());
  algorithm::HostRequest request;
  request.collective = static_cast<std::uint32_t>(Collective::barrier);
  Status outcome = staged_->start();
  if (outcome.ok()) outcome = ask_host(request, stream);
  return made_elsewhere(std::move(outcome), stream, capturing);
}

Status CudaCommunicator::add_staged_path(Deadline deadline) {
  // Large pieces, for one protocol: it is not made for speed.
  Options options;
  options.slots = options.packets = 32;
  options.lines = protocol::kWideStep;
  options.create_timeout = wish_.options.create_timeout;
  NL_TRY_ASSIGN(auto host, HostCommunicator::create_within(*exchange_, options, timeout_, deadline));
  health_ = host->health();
  calls_.mirror(health_.call_word());
  health_.set(Health::well);
  staged_ = std::make_unique<StagedPath>(std::move(host), control_->host_turn(), control_->staging(),
                                         CudaControl::kStagingBytes);
  return {};
}

}  // namespace nearlight::runtime
