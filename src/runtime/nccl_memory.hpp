// Where a communicator on top of NCCL's has its memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

// How communicators come to be on either memory. Each is collective, and all ranks succeed or all fail.
struct NcclMemories {
  using Created = Result<std::unique_ptr<Communicator>>;

  std::string nccl;                                           // whose windows they would be
  Status windows_tested;                                      // of this rank's NCCL
  std::function<Created(const std::string& reason)> windows;  // in windows of NCCL
  // In memory that the ranks share without NCCL, which `met` carries. At the latest at the deadline.
  std::function<Created(std::unique_ptr<Exchange> met, const std::string& reason, Deadline deadline)> vmm;
};

// What NEARLIGHT_NCCL_MEMORY says. Where it says nothing: windows, else, where all ranks lack them
// (Code::unsupported), the other one; any other failure of theirs is the failure. `known`: the ranks, by way
// of NCCL. A failure of the second tells why it was not the first.
Result<std::unique_ptr<Communicator>> create_on_nccl_memory(Exchange& known, const NcclMemories& memories,
                                                            Deadline deadline);

}  // namespace nearlight::runtime
