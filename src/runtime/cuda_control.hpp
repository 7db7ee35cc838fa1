// The memory through which a GPU communicator's kernels and its host talk: epochs, failure words, the fault
// record.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <nearlight/detail/protocol/fault.hpp>
#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/cuda/host_turn.hpp"
#include "algorithm/cuda/messages.hpp"
#include "base/status.hpp"
#include "trace/epoch_ring.hpp"
#include "trace/turn_ring.hpp"

namespace nearlight::runtime {

// Shared by the communicator and by every CUDA graph that captured one of its operations: a graph replayed
// after the communicator is gone still finds its state words (which say "failed": it neither sends nor
// waits).
class CudaControl {
 public:
  // Bytes of the buffer through which a message of any size goes to the CPU and back.
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20;

  // What there is of each.
  struct Parts {
    std::uint32_t regions = 0;
    std::uint32_t pipe_ends = 0;   // this rank's ends of the pipes that messages go through, [lane][peer]
    bool traced = false;           // rings of times for traced kernels
    bool staging = false;          // pinned memory for calls that the CPU makes
    std::size_t buffer_bytes = 0;  // device memory for what NCCL must not do in the caller's
    bool operator==(const Parts&) const = default;
  };
  // On the current device, which is `device`; all at rest. Epoch words start at `initial_epoch`. Takes what
  // has the same parts and is out of use, so that nothing needs to be freed here, where freeing could wait
  // for ever. The last holder may let go anywhere, in CUDA's own threads too: nothing is freed there either.
  static Result<std::shared_ptr<CudaControl>> create(int device, const Parts& parts,
                                                     std::uint32_t initial_epoch);
  CudaControl(const CudaControl&) = delete;
  ~CudaControl();

  algorithm::cuda::RegionStateWords* states() const { return states_; }
  std::uint32_t* claim() const { return claim_; }
  std::uint32_t* abort_word() const { return &host_->abort; }
  std::uint32_t* valid_word() const { return &host_->valid; }
  protocol::FaultRecord* record() const { return &host_->record; }
  // The five of them, as what a kernel gets.
  void name_in(algorithm::cuda::AllReduceArgs& args) const;

  // These outlive the communicator with the graphs that captured traced kernels.
  trace::EpochTimes* trace() const { return trace_; }
  trace::TurnTimes* turns() const { return turns_; }  // trace::turn_ring_of(lane, ...)

  algorithm::cuda::PipeStateWords* pipe_ends() const { return pipe_ends_; }
  // While the device is idle: the turn after `turn` is the next of all of them.
  Status rest_pipes(std::uint32_t turn) const;

  algorithm::cuda::HostTurnWords* host_turn() const { return &staging_->turn; }
  char* staging() const { return staging_->data; }
  void* buffer() const { return buffer_; }

  // True when a record is there to be read (acquire).
  bool has_fault() const;
  // Makes all waits of running kernels end.
  void set_abort() const;
  // Of each region. Waits for the device.
  Result<std::vector<std::uint32_t>> epochs(std::uint32_t regions) const;
  // While the device is idle: the highest epoch of any region.
  Result<std::uint32_t> highest_epoch(std::uint32_t regions) const;
  // While the device is idle: every region goes on after `epoch` and may fail again. The words that the host
  // sees stay as they are.
  Status rearm(std::uint32_t regions, std::uint32_t epoch) const;
  // The last step: no abort, no record.
  void clear_host_words() const;
  // Every later kernel neither sends nor waits. Waits for the device.
  Status close(std::uint32_t regions) const;

  // Keeps `self` alive as long as the graph that `stream` is capturing into, or anything instantiated from
  // it, lives. Nothing happens when the stream is not capturing. True when it is.
  static Result<bool> retain_for_capture(const std::shared_ptr<CudaControl>& self, cudaStream_t stream);
  // Whether the stream is being captured; keeps nothing alive.
  static Result<bool> is_capturing(cudaStream_t stream);
  // Frees what is out of use on `device`. Waits for the device.
  static void free_retired(int device);

 private:
  static constexpr std::size_t kClaimBytes = 128;
  struct HostPart {
    alignas(128) std::uint32_t abort;
    alignas(128) std::uint32_t valid;
    protocol::FaultRecord record;
  };
  struct Staging {
    algorithm::cuda::HostTurnWords turn;
    alignas(256) char data[kStagingBytes];
  };
  CudaControl(int device, const Parts& parts) : device_(device), parts_(parts) {}
  static std::unique_ptr<CudaControl> take_retired(int device, const Parts& parts);
  static void retire(std::unique_ptr<CudaControl> control) noexcept;
  std::size_t trace_bytes() const { return parts_.regions * trace::kLinesOnGpu * sizeof *trace_; }
  std::size_t turns_bytes() const {
    return trace::turn_rings(parts_.pipe_ends, 1) * trace::kTurnLinesOnGpu * sizeof *turns_;
  }
  Status allocate();
  Status rest(std::uint32_t initial_epoch);

  const int device_;
  const Parts parts_;
  algorithm::cuda::RegionStateWords* states_ = nullptr;   // device
  std::uint32_t* claim_ = nullptr;                        // device
  trace::EpochTimes* trace_ = nullptr;                    // device; null: none
  trace::TurnTimes* turns_ = nullptr;                     // likewise
  algorithm::cuda::PipeStateWords* pipe_ends_ = nullptr;  // device
  HostPart* host_ = nullptr;                              // pinned, mapped at the same address
  Staging* staging_ = nullptr;                            // likewise; null: none
  void* buffer_ = nullptr;                                // device; null: none
  unsigned long long last_capture_ = 0;                   // id of the capture that was retained last
  bool whole_ = false;                                    // all parts are there
  std::unique_ptr<CudaControl> next_;                     // of those that are out of use
};

}  // namespace nearlight::runtime
