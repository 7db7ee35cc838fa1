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

  std::string nccl;  // "NCCL 2.28.9"
  // This rank's: whether windows of its NCCL were tested; whether GPUs may reach each other's memory without
  // it.
  Status windows_tested, may_do_without;
  // In windows of NCCL.
  std::function<Created(std::shared_ptr<Exchange> known, const std::string& reason)> windows;
  // In memory that the ranks share without NCCL, which `met` carries. `asked`: by the variable, so that GPUs
  // need not be connected as NCCL's windows need them.
  std::function<Created(std::unique_ptr<Exchange> met, const std::string& reason, bool asked)> vmm;
};

// What NEARLIGHT_NCCL_MEMORY says. Where it says nothing: windows, else, where all ranks lack them
// (Code::unsupported), the other one; any other failure of theirs is the failure. `known`: the ranks, by way
// of NCCL; let go of before the other memory is made, when no rank has a kernel yet. A failure of the second
// tells why it was not the first.
Result<std::unique_ptr<Communicator>> create_on_nccl_memory(std::shared_ptr<Exchange> known,
                                                            const NcclMemories& memories, Deadline deadline);

}  // namespace nearlight::runtime
