// Memory for the channels of kernels that are not the library's, on GPUs.
#include <utility>

#include "runtime/channels.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/device_memory.hpp"

namespace nearlight::runtime {

namespace {

class CudaChannels final : public Channels {
 public:
  CudaChannels(int device, std::unique_ptr<memory::Heap> heap, const protocol::ChannelMemory& limits)
      : device_(device), heap_(std::move(heap)) {
    memory_ = limits;
    memory_.base = heap_->view().base;
    memory_.stride = heap_->view().stride;
  }

  // This rank's part, with its device current.
  Status prepare() {
    const std::size_t bytes = protocol::plan_channels(memory_.shape).own_bytes;
    NL_TRY(own_.allocate(bytes));
    memory_.own = static_cast<char*>(own_.get());
    NL_TRY_CUDA(cudaMemset(memory_.own, 0, bytes));
    const protocol::RegionLayout layout = memory_.shape.layout();
    if (layout.packets_bytes() > 0) {
      NL_TRY_CUDA(cudaMemset2D(heap_->view().mine() + layout.packets_at(), layout.region_bytes(), 0xff,
                               layout.packets_bytes(), memory_.shape.channels));
    }
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return {};
  }

  Status retire() override {
    const DeviceGuard guard(device_);
    NL_TRY(guard.status());
    // Every word, the failure words among them.
    NL_TRY_CUDA(cudaMemset(memory_.own, 0xff, protocol::plan_channels(memory_.shape).own_bytes));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return {};
  }

 private:
  int device_;
  std::unique_ptr<memory::Heap> heap_;
  DeviceMemory own_;
};

}  // namespace

Result<protocol::ChannelMemory> CudaCommunicator::make_channels(protocol::ChannelShape shape,
                                                                std::uint32_t peers) {
  if (own_way_failed()) return status();
  if (exchange_ == nullptr) return failure(Code::invalid_usage, "rank %d was shrunk", rank_);
  const Deadline deadline = Deadline::after(wish_.options.create_timeout);
  shape.nranks = nranks();
  const DeviceGuard guard(device_);
  NL_TRY(check_channels_agree(*exchange_, guard.status(), shape, peers, deadline));
  protocol::ChannelMemory limits;
  limits.abort = control_->abort_word();
  limits.claim = control_->claim();
  limits.valid = control_->valid_word();
  limits.record = control_->record();
  limits.timeout_ns = static_cast<std::uint64_t>(timeout_.count());
  limits.rank = rank_;
  limits.peers = peers;
  limits.shape = shape;
  limits.collective = static_cast<std::uint32_t>(kChannel);
  NL_TRY_ASSIGN(auto heap, wish_.heap.make(wish_.heap.context, *exchange_, device_,
                                           protocol::plan_channels(shape).shared_bytes, deadline));
  auto channels = std::make_unique<CudaChannels>(device_, std::move(heap), limits);
  // Nobody leaves before all are ready: a fast rank's first message must find memory at rest.
  NL_TRY(agree(*exchange_, channels->prepare(), deadline));
  channels_.push_back(std::move(channels));
  return channels_.back()->memory();
}

}  // namespace nearlight::runtime
