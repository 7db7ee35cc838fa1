// Wrong spaces, views and groups: each breaks one rule that the product keeps, so that a check can show that
// it would notice.
#pragma once

#include <cstdint>

#include "exec/model_space.hpp"  // last

namespace nearlight::model {

using exec::ModelSpace;
using exec::Order;
using exec::Pack;
using exec::Scope;

// [E1] Both epochs of a pair share one bank.
template <class Memory>
struct OneBank : exec::ModelRegion<exec::ModelSpace, Memory> {
  using Base = exec::ModelRegion<exec::ModelSpace, Memory>;
  using Base::Base;
  auto& flag(int peer, int, int source) const { return Base::flag(peer, 0, source); }
  auto& line(int peer, int, int source, std::uint32_t slot) const {
    return Base::line(peer, 0, source, slot);
  }
  auto& cell(int peer, int, int source, std::uint32_t index) const {
    return Base::cell(peer, 0, source, index);
  }
};

// [E1] The same for packets.
template <class Memory>
struct OnePacketBank : exec::ModelRegion<exec::ModelSpace, Memory> {
  using Base = exec::ModelRegion<exec::ModelSpace, Memory>;
  using Base::Base;
  auto& packet(int peer, int, int source, std::uint32_t index) const {
    return Base::packet(peer, 0, source, index);
  }
};

// [E1] The lanes of a rank never meet inside a session.
struct NoSync : exec::ModelCoop {
  void sync() {}
};

// A group that meets but does not tell its threads that one of them has failed.
struct NoVote : exec::ModelCoop {
  bool sync_any(bool mine) {
    sync();
    return mine;
  }
};

// [L2] Only one half of the line is looked at.
struct OneFlagALine : ModelSpace {
  static bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    std::uint32_t of_first = 0;
    ModelSpace::try_load_line(line, flag, out, of_first);
    const std::uint64_t first = line.half[0](RL_INFO).load(rl::mo_relaxed);
    seen = exec::high_half(first);
    return seen == flag;
  }
};

// [N2] A packet counts as arrived when its first half has.
struct OneHalfAPacket : ModelSpace {
  static exec::Vec load_packet(const Packet& packet) {
    exec::Vec vec = ModelSpace::load_packet(packet);
    if (vec.pack[0] != ~Pack{0} && vec.pack[1] == ~Pack{0}) vec.pack[1] = 0;
    return vec;
  }
};

// [N3] Nobody puts the sentinel back.
struct NeverReset : ModelSpace {
  static void store_packet(Packet& packet, const exec::Vec& value) {
    if (value.pack[0] != ~Pack{0} || value.pack[1] != ~Pack{0}) ModelSpace::store_packet(packet, value);
  }
};

// [E1] The same for wide lines, and for sums.
template <class Memory>
struct OneWideBank : exec::ModelRegion<exec::ModelSpace, Memory> {
  using Base = exec::ModelRegion<exec::ModelSpace, Memory>;
  using Base::Base;
  auto& wide(int peer, int, int source, std::uint32_t line) const {
    return Base::wide(peer, 0, source, line);
  }
};
template <class Memory>
struct OneSumBank : exec::ModelRegion<exec::ModelSpace, Memory> {
  using Base = exec::ModelRegion<exec::ModelSpace, Memory>;
  using Base::Base;
  auto& sum(int peer, int, std::uint32_t line) const { return Base::sum(peer, 0, line); }
};

// [W1], [A1] A wide line comes in two pieces, its word first.
struct TornLines : ModelSpace {
  struct Wide {
    rl::atomic<exec::ModelLine> payload = exec::ModelLine{};
    rl::atomic<Pack> word = 0;
  };
  static exec::ModelLine payload_of(const Part& value) { return {{value.pack[0], value.pack[1], 0}}; }
  static void store_part(Wide& line, int, const Part& value) {
    line.word(RL_INFO).store(value.pack[2], rl::mo_relaxed);
    line.payload(RL_INFO).store(payload_of(value), rl::mo_relaxed);
  }
  static Part load_part(const Wide& line, int) {
    const Pack word = line.word(RL_INFO).load(rl::mo_relaxed);
    const exec::ModelLine value = line.payload(RL_INFO).load(rl::mo_relaxed);
    return {{value.pack[0], value.pack[1], word}};
  }
  template <exec::Adds>
  static void add_part(Wide& line, int, const Part& value) {
    line.word(RL_INFO).fetch_add(value.pack[2], rl::mo_relaxed);
    line.payload(RL_INFO).fetch_add(payload_of(value), rl::mo_relaxed);
  }
  static void zero_part(Wide& line, int part) { store_part(line, part, {}); }
  static void clear_word(Wide& line) { zero_part(line, 0); }
  static Pack load_word(const Wide& line) { return line.word(RL_INFO).load(rl::mo_relaxed); }
};

// [A3] Nobody puts sums to rest; [E2] nor wide lines.
template <std::uint32_t last>
struct NeverZeroed : exec::ModelSpaceWith<last> {
  static void zero_part(typename exec::ModelSpaceWith<last>::Wide&, int) {}
  static void clear_word(typename exec::ModelSpaceWith<last>::Wide&) {}
};

// [A3] The owner sets a sum to zero that not all ranks have added to.
struct ZeroedTooSoon : ModelSpace {
  static Part load_part(const Wide& line, int part) {
    const Part value = ModelSpace::load_part(line, part);
    // The word of one rank counts as that of both.
    return value.pack[2] == 1 ? Part{{value.pack[0], value.pack[1], 3}} : value;
  }
};

// [S1] The flag is stored without release.
struct RelaxedRelease : ModelSpace {
  template <Order, Scope scope>
  static void store(Word& word, std::uint32_t value) {
    ModelSpace::store<Order::relaxed, scope>(word, value);
  }
};

// [S2] The flag is loaded without acquire.
struct RelaxedAcquire : ModelSpace {
  template <Order, Scope scope>
  static std::uint32_t load(const Word& word) {
    return ModelSpace::load<Order::relaxed, scope>(word);
  }
};

// A line whose store releases and whose load acquires: the CPU's.
struct OrderedLines : ModelSpace {
  static void store_line(Line& line, Pack pack, std::uint32_t flag) {
    line.half[0](RL_INFO).store(exec::join_halves(exec::low_half(pack), flag), rl::mo_release);
    line.half[1](RL_INFO).store(exec::join_halves(exec::high_half(pack), flag), rl::mo_release);
  }
  static bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    const std::uint64_t first = line.half[0](RL_INFO).load(rl::mo_acquire);
    const std::uint64_t second = line.half[1](RL_INFO).load(rl::mo_acquire);
    out = exec::join_halves(exec::low_half(first), exec::low_half(second));
    seen = exec::high_half(first) == flag ? exec::high_half(second) : exec::high_half(first);
    return exec::high_half(first) == flag && exec::high_half(second) == flag;
  }
};

// Pairs of lanes in lockstep, as a warp's threads are: what depends on a vote goes the same way for both. The
// vote orders no memory. Unlike a warp's, the lanes still store one after the other.
struct LockstepPairs : ModelSpace {
  static constexpr int kLockstep = 2;
  static bool all_in_lockstep(bool mine) {
    auto& vote = exec::model_counters.votes[rl::thread_index() / kLockstep];
    const std::uint32_t number = vote.number;
    vote.against += !mine;
    if (++vote.cast == kLockstep) {
      vote.outcome = vote.against == 0;
      vote.cast = vote.against = 0;
      ++vote.number;
    }
    while (vote.number == number) rl::yield(1, RL_INFO);
    return vote.outcome;
  }
};

// [E2] Nothing is cleared as numbering starts anew.
template <std::uint32_t last>
struct NeverCleared : exec::ModelSpaceWith<last> {
  using Base = exec::ModelSpaceWith<last>;
  static void store_line(typename Base::Line& line, Pack pack, std::uint32_t flag) {
    if (flag != 0) Base::store_line(line, pack, flag);
  }
  template <Order order, Scope scope>
  static void store(typename Base::Word& word, std::uint32_t value) {
    if (value != 0) Base::template store<order, scope>(word, value);
  }
};

// [E2] No fences there.
template <std::uint32_t last>
struct NoFence : exec::ModelSpaceWith<last> {
  static void fence_system() {}
};

// [E2] Between the clearing and the fence the group does not meet: a space that takes down who has cleared,
// and a group that then leaves out its next sync.
template <std::uint32_t last>
struct ClearingNoted : exec::ModelSpaceWith<last> {
  using Base = exec::ModelSpaceWith<last>;
  static void store_line(typename Base::Line& line, Pack pack, std::uint32_t flag) {
    if (flag == 0) exec::model_counters.cleared[rl::thread_index()] = true;
    Base::store_line(line, pack, flag);
  }
};
struct NoSyncAfterClearing : exec::ModelCoop {
  void sync() {
    bool& cleared = exec::model_counters.cleared[rl::thread_index()];
    if (!cleared) ModelCoop::sync();
    cleared = false;
  }
};

// A clock that stands still: no wait ever ends by itself.
struct StoppedClock : ModelSpace {
  static std::uint64_t now_ns() { return 1; }
};

// The abort word is never seen.
struct DeafToAbort : ModelSpace {
  template <Order order, Scope scope>
  static std::uint32_t load(const Word& word) {
    if constexpr (order == Order::relaxed && scope == Scope::system) return 0;
    return ModelSpace::load<order, scope>(word);
  }
};

// Every thread that fails takes itself for the first.
struct EveryoneIsFirst : ModelSpace {
  static bool claim(Word& word) {
    ModelSpace::claim(word);
    word.claimed_by(RL_INFO).store(static_cast<int>(rl::thread_index()));
    return true;
  }
};

}  // namespace nearlight::model
