#include "runtime/channels.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <nearlight/detail/exec/host_space.hpp>
#include "memory/shm_heap.hpp"
#include "runtime/host_communicator.hpp"

namespace nearlight::runtime {

namespace {

class HostChannels final : public Channels {
 public:
  // Collective.
  Status make(Exchange& exchange, const protocol::ChannelMemory& limits, Deadline deadline) {
    memory_ = limits;
    const protocol::ChannelPlan plan = protocol::plan_channels(memory_.shape);
    NL_TRY_ASSIGN(heap_, memory::create_shm_heap(exchange, plan.shared_bytes, deadline));
    own_.resize(plan.own_bytes / sizeof(Line));
    memory_.base = heap_->view().base;
    memory_.stride = heap_->view().stride;
    memory_.own = reinterpret_cast<char*>(own_.data());
    const protocol::RegionLayout layout = memory_.shape.layout();
    char* const mine = heap_->view().mine();
    for (std::uint32_t i = 0; i < memory_.shape.channels; ++i)
      std::memset(mine + i * layout.region_bytes() + layout.packets_at(), 0xff, layout.packets_bytes());
    return {};
  }

  Status retire() override {
    using State = protocol::RegionState<exec::HostSpace>;
    for (std::uint32_t i = 0; i < memory_.shape.channels; ++i) {
      auto& failed = reinterpret_cast<State*>(memory_.own_of(i))->failed;
      exec::HostSpace::store<exec::Order::relaxed, exec::Scope::device>(failed, 1u);
    }
    return {};
  }

 private:
  struct Line {
    alignas(128) std::byte bytes[128];
  };
  std::unique_ptr<memory::Heap> heap_;
  std::vector<Line> own_;
};

std::uint32_t bit(std::size_t rank) { return std::uint32_t{1} << rank; }

}  // namespace

Status check_channels_agree(Exchange& exchange, const Status& mine, const protocol::ChannelShape& shape,
                            std::uint32_t peers, Deadline deadline) {
  Status possible = mine;
  if (possible.ok()) {
    if (const std::string wrong = protocol::wrong_with(shape); !wrong.empty())
      possible = failure(Code::invalid_argument, "%s", wrong.c_str());
    else if (peers >> exchange.nranks() != 0 || (peers & bit(static_cast<std::size_t>(exchange.rank()))) != 0)
      possible =
          failure(Code::invalid_argument, "peers: 0x%x are not other ranks of %d", peers, exchange.nranks());
  }
  NL_TRY(agree(exchange, possible, deadline));
  struct Wish {
    std::uint32_t value[6];
  };
  constexpr const char* kNames[] = {"channels", "slots", "packets", "cells", "checks"};
  const Wish wish{{shape.channels, shape.slots, shape.packets, shape.cells, shape.checks, peers}};
  NL_TRY_ASSIGN(const auto all, gather_values(exchange, wish, deadline));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      if (all[rank].value[i] == all[0].value[i]) continue;
      return failure(Code::invalid_usage, "channels differ between ranks: %s is %u on rank 0, %u on rank %zu",
                     kNames[i], all[0].value[i], all[rank].value[i], rank);
    }
  }
  const auto wants = [&](std::size_t rank, std::size_t peer) {
    const std::uint32_t mask = all[rank].value[5];
    return mask == 0 || (mask & bit(peer)) != 0;
  };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t peer = 0; peer < rank; ++peer) {
      if (wants(rank, peer) == wants(peer, rank)) continue;
      const std::size_t who = wants(rank, peer) ? rank : peer, whom = wants(rank, peer) ? peer : rank;
      return failure(Code::invalid_usage, "peers: rank %zu has rank %zu among them, but not the other way",
                     who, whom);
    }
  }
  return {};
}

Status retire_channels(const ChannelList& list) {
  for (const auto& channels : list) NL_TRY(channels->retire());
  return {};
}

Status free_channels(ChannelList& list, const char* own) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [own](const auto& channels) { return channels->memory().own == own; });
  if (found == list.end()) return failure(Code::invalid_argument, "channel: there is none such");
  list.erase(found);
  return {};
}

Result<protocol::ChannelMemory> HostCommunicator::make_channels(protocol::ChannelShape shape,
                                                                std::uint32_t peers) {
  if (failed()) return status();
  if (exchange_ == nullptr) return failure(Code::invalid_usage, "rank %d was shrunk", rank());
  const Deadline deadline = Deadline::after(options_.create_timeout);
  shape.nranks = nranks();
  NL_TRY(check_channels_agree(*exchange_, {}, shape, peers, deadline));
  protocol::ChannelMemory limits;
  limits.abort = &abort_;
  limits.claim = &claim_;
  limits.valid = &valid_;
  limits.record = &record_;
  limits.timeout_ns = static_cast<std::uint64_t>(timeout_.count());
  limits.rank = rank();
  limits.peers = peers;
  limits.shape = shape;
  limits.collective = static_cast<std::uint32_t>(kChannel);
  auto channels = std::make_unique<HostChannels>();
  // Nobody leaves before all are ready: a fast rank's first message must find memory at rest.
  NL_TRY(agree(*exchange_, channels->make(*exchange_, limits, deadline), deadline));
  channels_.push_back(std::move(channels));
  return channels_.back()->memory();
}

}  // namespace nearlight::runtime
