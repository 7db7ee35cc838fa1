// Ranks of one process for the GPU tests: a host thread, a stream, buffers and a communicator each.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/fault_point.hpp"
#include "base/status.hpp"
#include "probe/cuda_call.hpp"
#include "runtime/communicator.hpp"
#include "tests/gpu/device_work.hpp"

struct ncclComm;

namespace nearlight::test {

enum class Memory { cuda_vmm, nccl_window };

// Which ranks on which GPUs: rank r sits on device r % gpus.
struct Setup {
  Memory memory = Memory::cuda_vmm;
  int gpus = 1;
  int ranks = 2;
};
// A name for a parametrised test.
std::string name_of(const Setup& setup);
inline void PrintTo(const Setup& setup, std::ostream* out) {
  *out << name_of(setup) << " on " << setup.gpus << " GPU(s)";
}

struct Rank {
  int rank = 0, nranks = 1, device = 0;
  cudaStream_t stream = nullptr;
  std::vector<probe::Stream> streams;  // the first is `stream`; those of all ranks run at the same time
  std::unique_ptr<runtime::Communicator> comm;
  char* send = nullptr;  // kBufferBytes each, device; start 256 bytes aligned
  char* recv = nullptr;
  Report* report = nullptr;          // device
  std::uint64_t* counter = nullptr;  // device

  // A call's work on data that start `offset` bytes after the guard.
  Work work(const Pattern& pattern, std::uint64_t count, bool in_place, std::size_t send_offset = 0,
            std::size_t recv_offset = 0, std::uint32_t case_id = 0) const;
  // prepare, all_reduce, check, all on the rank's stream.
  Status prepare_reduce_check(const Work& work, const runtime::CallOptions& options = {}) const;
  // `on`: another stream than the rank's.
  Status all_reduce(const Work& work, const runtime::CallOptions& options = {},
                    cudaStream_t on = nullptr) const;
  // Waits for the stream, reads the report and empties it.
  Report wait_and_read() const;
};

class Group {
 public:
  // Reports failures to the test; ok() says whether there is a group.
  // `streams`: how many each rank gets.
  Group(const Setup& setup, const runtime::Options& options, std::size_t buffer_bytes, int streams = 1);
  Group(const Group&) = delete;
  ~Group();

  bool ok() const { return ok_; }
  Rank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int nranks() const { return static_cast<int>(ranks_.size()); }
  std::vector<Rank>& ranks() { return ranks_; }
  // Those that may be asked for: LL128 only where lines were found to be whole.
  const std::vector<route::Protocol>& protocols() const { return protocols_; }
  bool takes(route::Protocol protocol) const {
    return std::find(protocols_.begin(), protocols_.end(), protocol) != protocols_.end();
  }

  // Runs `body` for every rank in a thread of its own, its device current. Returns when all are done.
  void run(const std::function<void(Rank&)>& body);
  // Inside run(): waits for the other ranks' threads; those that have returned are not waited for.
  void meet();
  // Inside run(), once a call: keeps the threads within some calls of each other, with no look at the GPU. A
  // thread that is far ahead would fill its stream's queue and block, perhaps with a lock that the others
  // need to catch up.
  void keep_pace(std::uint64_t call) {
    if (call % 32 == 31) meet();
  }

  // Waits for all streams and expects that nothing was wrong and that every rank made `checks` checks (since
  // the last call). `describe` says what case it was.
  void expect_clean(std::uint64_t checks, const std::function<std::string(std::uint32_t)>& describe = {});

 private:
  std::vector<Rank> ranks_;
  std::vector<route::Protocol> protocols_;
  std::unique_ptr<std::barrier<>> barrier_;
  bool ok_ = false;
};

// What a rank's stream was given while it was captured, ready to be launched.
class Graph {
 public:
  // Captures what `body` enqueues on the rank's stream. Failures are reported to the test; ok() says whether
  // there is a graph.
  Graph(const Rank& rank, const std::function<Status()>& body,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  Graph(const Graph&) = delete;
  ~Graph() { destroy(); }

  bool ok() const { return exec_ != nullptr; }
  cudaError_t launch() const { return cudaGraphLaunch(exec_, stream_); }
  void destroy();

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
};

// Creates the communicators of a group, in one thread a rank; [rank] is the result. `hook_of`, where there is
// one: what is planted in a rank's thread.
std::vector<Result<std::unique_ptr<runtime::Communicator>>> create_communicators(
    const Setup& setup, const runtime::Options& options,
    const std::function<fault_points::Hook(int rank)>& hook_of = {});

// NCCL communicators of rank r on GPU r, one a rank. Made once a process, which takes NCCL a second, and left
// to its end.
Result<std::vector<ncclComm*>> nccl_communicators(int nranks);

// A CUDA error as a Status, for bodies that return one.
Status ok_or(const char* what, cudaError_t error);

// Default options for tests: a wait that lasts this long is a hang.
runtime::Options test_options();

}  // namespace nearlight::test
