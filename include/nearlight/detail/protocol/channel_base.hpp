// What all channels have: a session that is always inside an epoch, its end, the barrier, and the search for
// mistakes of the caller.
//
// The rule of a channel is the session's, pair by pair. A rank may end an epoch once it has heard from each
// of its peers in it; being peers is mutual and never changes. Then a rank that stores for epoch e+2 has
// heard, in e+1, from whom it stores to, and that rank had finished reading e before it sent ([E1]: the sync
// in advance_epoch). So two banks are enough. A one-way message is answered: the answer is its credit.
//
// An epoch in which nothing was done when the channel is closed is not counted: the next session begins it
// again. Counting it would leave an epoch in which nobody is heard.
#pragma once

#include <concepts>
#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/channel_memory.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include <nearlight/detail/protocol/simple.hpp>

namespace nearlight::protocol {

// kChecks: whether mistakes are looked for. kResets: whether receivers put packets back to rest ([N3]).
template <RegionView V, exec::Coop C, bool kChecks, bool kResets>
class ChannelBase {
 public:
  using Space = typename V::Space;
  using Word = typename Space::Word;

  NL_FN ChannelBase(const V& view, C coop, RegionState<Space>& state, const Control<Space>& control,
                    std::uint32_t peers, const ChannelNotes<Space>& notes, std::uint32_t index,
                    std::uint32_t collective)
      : session_(view, coop, state, control, index, collective),
        state_(state),
        control_(control),
        notes_(notes),
        peers_(peers),
        index_(index),
        collective_(collective) {
    before_ = session_.epoch();
    session_.begin_epoch();
    if constexpr (kChecks) forget_writers();
  }
  ChannelBase(const ChannelBase&) = delete;
  ChannelBase& operator=(const ChannelBase&) = delete;

  NL_FN int rank() const { return session_.view().rank(); }
  NL_FN int nranks() const { return session_.view().nranks(); }
  NL_FN std::uint32_t epoch() const { return session_.epoch(); }
  NL_FN C& coop() { return session_.coop(); }
  // Whether rank `peer` is one of those that are heard in every epoch.
  NL_FN bool is_peer(int peer) const { return (peers_ >> static_cast<std::uint32_t>(peer) & 1u) != 0; }
  // This thread has given up, or the rank had before: nothing is sent or waited for any more, and every call
  // returns false. The record says why.
  NL_FN bool failed() const { return stopped_ || session_.failed(); }

  // The clock of this rank's traces, ns: a GPU's %globaltimer, a CPU's CLOCK_MONOTONIC.
  NL_FN static std::uint64_t now_ns() { return Space::now_ns(); }

  // Ends the epoch and begins the next; all threads of the group call it. Before it, something must have been
  // received from every peer in this epoch, by whichever thread. It orders nothing but the channel's own
  // slots. False: this thread has failed.
  NL_FN bool advance_epoch() {
    if constexpr (kChecks) check_heard();
    if constexpr (kResets) session_.note_resets();
    session_.end_epoch();
    before_ = session_.epoch();
    session_.begin_epoch();  // [E1]: a sync
    touched_ = false;
    signalled_ = false;
    if constexpr (kChecks) forget_writers();
    return !failed();
  }

  // No rank's group goes through before all have come; all threads call it. What a rank's group stored
  // before, anywhere, is seen by every rank's group after it (release and acquire, system scope: [S1], [S2]).
  // It ends the epoch, and stands for the receive from every peer. All other ranks must be peers, and the
  // epoch without signals. False: this thread has failed.
  NL_FN bool barrier() {
    const std::uint32_t all =
        ((1u << static_cast<std::uint32_t>(nranks())) - 1u) & ~(1u << static_cast<std::uint32_t>(rank()));
    if (peers_ != all || signalled_) return misuse(Misuse::barrier_in_use, -1, 0);
    // Both, whatever has failed: a group's threads must meet equally often.
    publish(peers_);
    observe(peers_, 0);
    return advance_epoch();
  }

  // The end: all threads of the group call it, or end the channel's life together. The next session of this
  // channel, in this kernel or in a later one, goes on from here.
  NL_FN void close() {
    if (closed_) return;
    closed_ = true;
    const bool used = any_touched();
    if (used) {
      if constexpr (kChecks) check_heard();
      session_.end_epoch();
    }
    // Nobody is still to read the words that the next session changes.
    session_.coop().sync();
    if (session_.coop().thread_rank() == 0) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(state_.epoch,
                                                                       used ? session_.epoch() : before_);
    }
    session_.coop().sync();  // for a thread that opens the next session at once
  }

 protected:
  NL_FN ~ChannelBase() { close(); }

  NL_FN const V& view() const { return session_.view(); }
  NL_FN std::uint32_t peer_mask() const { return peers_; }
  // Waits unless this thread has failed; see Session::wait.
  template <class Attempt, class Blame>
  NL_FN bool wait(Attempt&& attempt, const Blame& blame) {
    return !stopped_ && session_.wait(attempt, blame);
  }
  // The same for threads in lockstep, all of which call it and get the same answer.
  template <class Attempt, class Blame>
  NL_FN bool wait_in_lockstep(Attempt&& attempt, const Blame& blame) {
    return Space::all_in_lockstep(!stopped_) && session_.wait_in_lockstep(attempt, blame);
  }

  // Tells the ranks of `mask`, all of them peers, that what the group has stored for this epoch is there. All
  // threads call it; when one of them has failed, none tells anybody.
  NL_FN bool publish(std::uint32_t mask) {
    touched_ = signalled_ = true;
    if (!all_well()) return false;
    for (int peer = coop().thread_rank(); peer < nranks(); peer += coop().size()) {
      if ((mask >> static_cast<std::uint32_t>(peer) & 1u) == 0) continue;
      Space::template store<exec::Order::release, exec::Scope::system>(  // [S1]
          view().flag(peer, bank_of(epoch()), rank()), epoch());
    }
    return true;
  }
  // Waits until the ranks of `mask` have told this one. All threads call it and then all of them may load
  // what was stored, or none may.
  NL_FN bool observe(std::uint32_t mask, std::uint32_t slot) {
    touched_ = signalled_ = true;
    for (int source = coop().thread_rank(); source < nranks(); source += coop().size()) {
      if ((mask >> static_cast<std::uint32_t>(source) & 1u) == 0) continue;
      Word& flag = view().flag(rank(), bank_of(epoch()), source);
      const std::uint32_t expected = epoch();
      if (wait(
              [&] {
                return Space::template load<exec::Order::acquire, exec::Scope::system>(flag) == expected;
              },
              SimpleMissing<Space>{flag, source, expected, slot}))  // [S2]
        note_heard(source);
    }
    return all_well();
  }

  // [F2] A sync after which the failure of one thread is the failure of all.
  NL_FN bool all_well() {
    if constexpr (kVotes) {
      if (coop().sync_any(failed())) stopped_ = true;
    } else {
      coop().sync();
      if (Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.failed) != 0)
        stopped_ = true;
    }
    return !failed();
  }

  // Whether message `index` of `capacity` may be sent to, or received from, `peer`.
  NL_FN bool may_use(int peer, std::uint32_t index, std::uint32_t capacity) {
    touched_ = true;
    if (failed()) return false;
    if constexpr (kChecks) {
      if (peer < 0 || peer >= nranks() || !is_peer(peer)) return misuse(Misuse::no_such_peer, peer, index);
      if (index >= capacity) return misuse(Misuse::no_such_slot, peer, index);
    }
    return true;
  }
  // The same for a message that is about to be written.
  NL_FN bool may_write(int peer, std::uint32_t index, std::uint32_t capacity) {
    if (!may_use(peer, index, capacity)) return false;
    if constexpr (kChecks) {
      if (notes_.heard != nullptr && !Space::claim(writer(peer, index)))
        return misuse(Misuse::two_writers, peer, index);
    }
    return true;
  }
  NL_FN void note_heard(int source) {
    if constexpr (kChecks) {
      if (notes_.heard != nullptr)
        Space::template store<exec::Order::relaxed, exec::Scope::device>(notes_.heard[source], epoch());
    }
  }

  // The memory is of another number of ranks than `compiled`: the session, too, must clear nothing in it.
  NL_FN void belongs_to_others(int compiled) {
    misuse(Misuse::other_ranks, -1, static_cast<std::uint32_t>(compiled));
    session_.stop();
  }
  // A mistake of the caller: this thread has failed, the record says how, and the rank's other waits end.
  NL_FN bool misuse(Misuse what, int peer, std::uint32_t slot) {
    stopped_ = true;
    FaultRecord fault{};
    fault.kind = static_cast<std::uint32_t>(kMisuse);
    fault.rank = rank();
    fault.peer = peer;
    fault.collective = collective_;
    fault.epoch = epoch();
    fault.region = index_;
    fault.slot = slot;
    fault.expected = epoch();
    fault.reserved = static_cast<std::uint32_t>(what);
    stop(control_, &state_.failed, fault);
    return false;
  }

 private:
  // Out of line, and without the object, which so never has to leave its registers.
  NL_COLD_FN static void stop(Control<Space> control, Word* failed, FaultRecord fault) {
    Space::template store<exec::Order::relaxed, exec::Scope::device>(*failed, 1u);
    report_fault<Space>(control, fault);
  }

  static constexpr bool kVotes = requires(C coop) {
    { coop.sync_any(true) } -> std::same_as<bool>;
  };

  NL_FN Word& writer(int peer, std::uint32_t index) const {
    return notes_.writers[static_cast<std::size_t>(peer) * notes_.messages + index];
  }

  // All threads call it.
  NL_FN void forget_writers() {
    if (notes_.heard == nullptr) return;
    const std::uint32_t all = static_cast<std::uint32_t>(nranks()) * notes_.messages;
    for (auto i = static_cast<std::uint32_t>(coop().thread_rank()); i < all;
         i += static_cast<std::uint32_t>(coop().size())) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(notes_.writers[i], 0u);
    }
    coop().sync();
  }

  // All threads call it; afterwards they all know.
  NL_FN void check_heard() {
    coop().sync();
    if (notes_.heard != nullptr && coop().thread_rank() == 0 && !failed()) {
      for (int source = 0; source < nranks(); ++source) {
        if (!is_peer(source)) continue;
        if (Space::template load<exec::Order::relaxed, exec::Scope::device>(notes_.heard[source]) == epoch())
          continue;
        misuse(Misuse::not_heard, source, 0);
        break;
      }
    }
    coop().sync();
    if (Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.failed) != 0) stopped_ = true;
  }

  // Whether any thread of the group has done anything in this epoch. All threads call it.
  NL_FN bool any_touched() {
    if constexpr (kVotes) {
      return session_.coop().sync_any(touched_);
    } else {
      // Of the state's spare words: the epoch in which something was done.
      if (touched_)
        Space::template store<exec::Order::relaxed, exec::Scope::device>(state_.reserved[0], epoch());
      session_.coop().sync();
      return Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.reserved[0]) == epoch();
    }
  }

  Session<V, C> session_;
  RegionState<Space>& state_;
  Control<Space> control_;
  ChannelNotes<Space> notes_;
  std::uint32_t peers_, index_, collective_;
  std::uint32_t before_ = 0;  // the last epoch before this one
  bool touched_ = false;      // this thread has sent or received in this epoch
  bool signalled_ = false;    // and signalled, or waited for a signal
  bool stopped_ = false;      // by a mistake of the caller, or by another thread's failure
  bool closed_ = false;
};

}  // namespace nearlight::protocol
