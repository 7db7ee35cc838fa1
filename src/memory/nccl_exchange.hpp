// An Exchange that goes through an NCCL communicator, for ranks that have nothing else in common.
#pragma once

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "base/exchange.hpp"

struct ncclComm;

namespace nearlight::memory {

// Collective over the communicator, which must outlive the exchange and is used by it only inside the
// exchange's calls. share_fd is unsupported; a timeout cannot name the missing ranks; processes() is empty
// unless all ranks share one host and one process namespace. After a timeout the communicator is unusable
// too, and some device memory stays behind until the process ends. `topic`: several exchanges of one
// communicator do not meet each other; one that does is Code::invalid_usage.
enum class NcclTopic : std::uint32_t { any, companion, communicator, window };
Result<std::unique_ptr<Exchange>> create_nccl_exchange(ncclComm* comm, Deadline deadline,
                                                       NcclTopic topic = NcclTopic::any);

}  // namespace nearlight::memory
