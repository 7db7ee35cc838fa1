// Memory for the channels of kernels that are not the library's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <nearlight/detail/protocol/channel_memory.hpp>
#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::runtime {

// What one make_channels() gave; freed with this object.
class Channels {
 public:
  virtual ~Channels() = default;
  const protocol::ChannelMemory& memory() const { return memory_; }
  // Whoever uses it from now on neither sends nor waits.
  virtual Status retire() = 0;

 protected:
  protocol::ChannelMemory memory_;
};
using ChannelList = std::vector<std::unique_ptr<Channels>>;

// Collective: all ranks ask for the same, and for something possible. `mine`: why this rank cannot in any
// case. `peers`: must be mutual.
Status check_channels_agree(Exchange& exchange, const Status& mine, const protocol::ChannelShape& shape,
                            std::uint32_t peers, Deadline deadline);
Status retire_channels(const ChannelList& list);
Status free_channels(ChannelList& list, const char* own);

}  // namespace nearlight::runtime
