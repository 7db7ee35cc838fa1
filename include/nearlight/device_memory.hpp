// Memory for channels from a communicator, and what their kernels did in its trace, in C++20, for host code
// and .cu files.
#ifndef NEARLIGHT_DEVICE_MEMORY_HPP
#define NEARLIGHT_DEVICE_MEMORY_HPP

#include <nearlight/device.h>
#include <nearlight/nearlight.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include <nearlight/detail/protocol/channel.hpp>

namespace nearlight::device {

// What a kernel gets.
inline Memory memory_of(const nearlightChannel_t& channel) {
  Memory memory;
  memory.base = static_cast<char*>(channel.base);
  memory.stride = channel.stride;
  memory.own = static_cast<char*>(channel.own);
  memory.abort = channel.abort;
  memory.claim = channel.claim;
  memory.valid = channel.valid;
  memory.record = static_cast<Fault*>(channel.record);
  memory.timeout_ns = channel.timeout_ns;
  memory.rank = channel.rank;
  memory.peers = channel.peers;
  memory.shape = {channel.nranks,  channel.channels, channel.slots,
                  channel.packets, channel.cells,    channel.checks};
  memory.collective = channel.collective;
  return memory;
}

// Channels of one rank, freed with this object, which must end before its communicator. See
// nearlightChannelCreate.
class Channels {
 public:
  // Collective. `shape.nranks` is the communicator's, whatever it says. Throws nearlight::Error.
  explicit Channels(const Communicator& comm, const Shape& shape, std::uint32_t peers = 0)
      : comm_(comm.handle()) {
    nearlightChannelConfig_t config = NEARLIGHT_CHANNEL_CONFIG_INITIALIZER;
    config.channels = shape.channels;
    config.slots = shape.slots;
    config.packets = shape.packets;
    config.cells = shape.cells;
    config.peers = peers;
    config.checks = shape.checks;
    nearlight::detail::check(nearlightChannelCreate(comm_, &config, &channel_));
  }
  Channels(Channels&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), channel_(other.channel_) {}
  Channels& operator=(Channels&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(channel_, other.channel_);
    return *this;
  }
  ~Channels() {
    if (comm_ != nullptr) static_cast<void>(nearlightChannelDestroy(comm_, &channel_));
  }

  // A kernel's parameter, by value.
  Memory memory() const { return memory_of(channel_); }

 private:
  nearlightComm_t comm_;
  nearlightChannel_t channel_ = NEARLIGHT_CHANNEL_INITIALIZER;
};

// Something of the program's own that took time. See nearlightSpan_t.
struct Span {
  std::string name;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint32_t track = 0;
  std::uint32_t to = 0, from = 0;  // ranks, by bits
  std::uint64_t message = 0;
};
// Adds it to the communicator's trace; where it does not trace, nothing happens. Any thread. Throws
// nearlight::Error. See nearlightCommTraceSpan.
inline void trace(const Communicator& comm, const Span& span) {
  nearlightSpan_t given = NEARLIGHT_SPAN_INITIALIZER;
  given.name = span.name.c_str();
  given.begin_ns = span.begin_ns;
  given.end_ns = span.end_ns;
  given.message = span.message;
  given.track = span.track;
  given.to = span.to;
  given.from = span.from;
  nearlight::detail::check(nearlightCommTraceSpan(comm.handle(), &given));
}

}  // namespace nearlight::device

#endif  // NEARLIGHT_DEVICE_MEMORY_HPP
