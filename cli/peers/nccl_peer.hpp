// NCCL as a peer, and the communicators that nearlight attaches to.
#pragma once

#include <memory>
#include <string>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "cli/bench/contender.hpp"

struct ncclComm;

namespace nearlight::peers {

// One rank's NCCL communicator, destroyed with the last that uses it.
class NcclComm {
 public:
  virtual ~NcclComm() = default;
  virtual ncclComm* get() const = 0;
  // "2.28.9"
  virtual std::string version() const = 0;
};

// Collective. The current device becomes the rank's. Code::unsupported where there is no NCCL.
Result<std::shared_ptr<NcclComm>> create_nccl_comm(Exchange& exchange);

// `symmetric`: both buffers in windows registered as symmetric ("nccl_sym"); else ordinary memory ("nccl").
Result<std::unique_ptr<bench::Contender>> make_nccl_contender(std::shared_ptr<NcclComm> comm, bool symmetric);

}  // namespace nearlight::peers
