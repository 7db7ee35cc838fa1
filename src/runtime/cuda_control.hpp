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
  // On the current device. Epoch words start at `initial_epoch`.
  static Result<std::shared_ptr<CudaControl>> create(int device, std::uint32_t regions,
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

  // Zeroed rings of times for traced kernels, which outlive the communicator with the graphs that captured
  // such kernels.
  // `turn_rings`: of the ends of pipes (trace/turn_ring.hpp).
  Status add_trace(std::uint32_t regions, std::size_t turn_rings);
  trace::EpochTimes* trace() const { return trace_; }
  trace::TurnTimes* turns() const { return turns_; }

  // This rank's ends of the pipes that messages go through, [lane][peer].
  Status add_pipes(std::uint32_t ends);
  algorithm::cuda::PipeStateWords* pipe_ends() const { return pipe_ends_; }
  // While the device is idle: the turn after `turn` is the next of all of them.
  Status rest_pipes(std::uint32_t turn) const;

  // Bytes of the buffer through which a message of any size goes to the CPU and back.
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20;
  // Pinned memory for calls that the CPU makes.
  Status add_staging();
  algorithm::cuda::HostTurnWords* host_turn() const { return &staging_->turn; }
  char* staging() const { return staging_->data; }
  // Device memory of so many bytes, zeroed, for what NCCL must not do in the caller's.
  Status add_buffer(std::size_t bytes);
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
  // Frees the controls whose last graph is gone. Graph clean-up must not call CUDA, so they wait here.
  static void free_retired();

 private:
  struct HostPart {
    alignas(128) std::uint32_t abort;
    alignas(128) std::uint32_t valid;
    protocol::FaultRecord record;
  };
  struct Staging {
    algorithm::cuda::HostTurnWords turn;
    alignas(256) char data[kStagingBytes];
  };
  CudaControl() = default;

  int device_ = 0;
  algorithm::cuda::RegionStateWords* states_ = nullptr;   // device
  std::uint32_t* claim_ = nullptr;                        // device
  trace::EpochTimes* trace_ = nullptr;                    // device; null: none
  trace::TurnTimes* turns_ = nullptr;                     // likewise
  algorithm::cuda::PipeStateWords* pipe_ends_ = nullptr;  // device
  std::uint32_t pipe_end_count_ = 0;
  HostPart* host_ = nullptr;             // pinned, mapped at the same address
  Staging* staging_ = nullptr;           // likewise; null: none
  void* buffer_ = nullptr;               // device; null: none
  unsigned long long last_capture_ = 0;  // id of the capture that was retained last
};

}  // namespace nearlight::runtime
