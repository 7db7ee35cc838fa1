// One implementation of the collectives at one rank, as the benchmark sees it: nearlight or a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "cli/results.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

struct Operation {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // as the collective takes it: of all_gather, reduce_scatter and all_to_all one part
  DataType type = DataType::f32;
  Reduction op = ReduceOp::sum;
  Collective collective = Collective::all_reduce;
  int root = 0;  // broadcast, reduce
};

// How an implementation does an operation, as far as it tells.
struct Choice {
  std::string algorithm;
  std::string protocol;
  int grid = 0;
  std::string reason;
  std::string forced = {};  // what the caller asked for, as ResultRow::forced
};

// Memory of one rank for inputs and outputs.
struct Buffers {
  char* send = nullptr;
  char* recv = nullptr;
};

class Contender {
 public:
  virtual ~Contender() = default;

  // As it stands in result files: "nearlight", "nccl", "nccl_sym", "openmpi".
  virtual const char* impl() const = 0;
  // On a GPU it is enqueued; on a CPU the result is there when the call returns.
  Status run(const Operation& operation, runtime::Stream stream) {
    return operation.collective == Collective::all_reduce ? all_reduce(operation, stream)
                                                          : by_parts(operation, stream);
  }
  // Before operations on new inputs, which are in `operation.send`; not timed. Collective, and nothing of it
  // is under way on `stream` when it returns.
  virtual Status prepare(const Operation&, runtime::Stream /*stream*/) { return {}; }
  // Behind operations, before their result is looked at; not timed. Nothing of it is under way on `stream`
  // when it returns.
  virtual Status finish(const Operation&, runtime::Stream /*stream*/) { return {}; }
  virtual Status all_reduce(const Operation& operation, runtime::Stream stream) = 0;
  // The other collectives.
  virtual Status by_parts(const Operation& operation, runtime::Stream) {
    return failure(Code::unsupported, "%s has no %s here", impl(), name_of(operation.collective));
  }
  // A failure that a call's own status could not tell yet. Never blocks.
  virtual Status failed() const { return {}; }
  // Ends what it still waits for, after a failure of any rank, from any thread. It need not work any more
  // afterwards.
  virtual void abandon() {}
  // A failure where an operation would fail alike: what is forced cannot be.
  virtual Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const = 0;
  virtual Result<Choice> choice_of(const Operation& operation, cli::Mode mode) const {
    return choice(operation.count, operation.type, operation.op.op, mode);
  }
  // How often a sum of a small float type may be rounded on its way (see reference.hpp).
  virtual int roundings() const = 0;

  // It has no operation whose input stays as it is: also the variant out of place is then run with send ==
  // recv.
  virtual bool in_place_only() const { return false; }

  // Kernel mode: us.size() samples of `chain` operations each, all inside one kernel; the time of one
  // operation.
  virtual Status run_loop(const Operation&, std::uint32_t /*chain*/, std::span<double> /*us*/,
                          runtime::Stream) {
    return failure(Code::unsupported,
                   "%s has no operation that runs inside a kernel: mode kernel is nearlight's alone", impl());
  }

  // How it was set up, as far as that changes its times: for the heading and the result file. "": nothing to
  // tell.
  virtual std::string settings() const { return ""; }

  // Own memory for buffers of `bytes` each, if it needs some of its own kind: collective. Null: any memory of
  // the place will do.
  virtual Result<Buffers> own_buffers(std::size_t /*bytes*/) { return Buffers{}; }
};

// Further implementations at this rank, beside nearlight.
using MakePeers = std::function<Result<std::vector<std::unique_ptr<Contender>>>(Exchange&)>;

}  // namespace nearlight::bench
