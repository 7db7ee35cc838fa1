// One group's hold on its region while it runs collectives: the epoch lives in a register from open to close.
//
// The rule that makes two banks enough (checked by the model tests): a thread stores for epoch e+1 only after
// every thread of its group has finished reading epoch e, and in every epoch every rank hears from every
// other. Then whoever hears a peer's epoch e+1 knows that the peer has read everything of epoch e, and may
// overwrite that bank for epoch e+2.
//
// [E3] Sessions of one region are ordered by the caller: all threads of the group have closed one before any
// of them opens the next, and what they loaded and stored in it is done before that (on the GPU the boundary
// between two kernels does it). Where nothing of the kind lies between two sessions, LL's lines and the
// sentinel's packets must themselves release and acquire, as the CPU's do: else, after a session of theirs, a
// peer could overwrite cells of the session before that have not been read, or a packet before its reset.
#pragma once

#include <concepts>
#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/poll.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::protocol {

// The rank's own memory, one a region, shared by every collective and protocol that uses the region. Zeroed
// at creation.
template <class S>
struct alignas(16) RegionState {
  typename S::Word epoch;   // the last one used
  typename S::Word failed;  // non-zero: neither send nor wait any more
  typename S::Word reserved[2];
};

template <RegionView V, exec::Coop C>
class Session {
 public:
  using Space = typename V::Space;

  // `region`: index of the region, for fault records; `collective`: likewise.
  NL_FN Session(const V& view, C coop, RegionState<Space>& state, const Control<Space>& control,
                std::uint32_t region, std::uint32_t collective)
      : view_(view), coop_(coop), state_(state), control_(control), region_(region), collective_(collective) {
    // Written by the kernel before (or by the host): a relaxed load is enough, the kernel boundary orders it.
    epoch_ = Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.epoch);
    failed_ = Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.failed);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  NL_FN const V& view() const { return view_; }
  NL_FN C& coop() { return coop_; }
  NL_FN std::uint32_t epoch() const { return epoch_; }
  // This thread has given up, or the communicator had failed before: nothing may be sent, nothing is waited
  // for.
  NL_FN bool failed() const { return failed_ != 0; }

  // The next epoch. From the second on the group first makes sure that all its threads are done with the one
  // before. No branch of one thread alone is in it: what was loaded before it is not waited for by accident.
  NL_FN std::uint32_t begin_epoch() {
    if (used_) {
      // [N3]: see note_resets().
      if (orders_ > 0) order(coop_);
      coop_.sync();  // [E1]: every read of the epoch before < sync < every store of the next
    }
    used_ = true;
    if (orders_ > 0) --orders_;
    epoch_ = next_epoch<Space>(epoch_);
    return epoch_;
  }

  // After this thread has read all it reads of the epoch.
  NL_FN void end_epoch() {
    if (touches_wrap<Space>(epoch_)) wrap(view_, coop_, epoch_, failed_ != 0);
  }

  // The group has put sentinels back. In the same session the next two epochs then begin with a fence, which
  // costs more than a microsecond on a GPU; between sessions E3 has it. Both sides of [N3] run one: the next
  // epoch's is for our own resets, the one after for the peer's, which we have then heard of.
  NL_FN void note_resets() { orders_ = 2; }

  // Whether `count` more epochs stay clear of the wrap, so that end_epoch() would do nothing in any of them.
  NL_FN bool is_far_from_wrap(std::uint64_t count) const {
    return epoch_ >= kFirstWrapped && epoch_ + count < Space::kLastEpoch - 1;
  }

  // Waits for `attempt` unless the session has failed. On failure `blame` says what was missing:
  // blame(fault) fills peer, slot, expected, seen. It is copied out of line, so it must hold values, not
  // references to what should stay in registers.
  template <class Attempt, class Blame>
  NL_FN bool wait(Attempt&& attempt, const Blame& blame) {
    if (failed_ != 0) return false;
    return poll<Space>(control_, attempt, [&](Wait limit) {
      failed_ = 1;
      give_up(control_, &state_.failed, what_is_known(limit), blame);
    });
  }
  // The same for the threads that run in lockstep with this one: all of them call it and leave it together;
  // when one of them has failed, none waits. A warp that stays together polls faster than one that falls
  // apart.
  template <class Attempt, class Blame>
  NL_FN bool wait_in_lockstep(Attempt&& attempt, const Blame& blame) {
    if (!Space::all_in_lockstep(failed_ == 0)) return false;
    return poll_in_lockstep<Space>(control_, attempt, [&](Wait limit) {
      failed_ = 1;
      give_up_in_lockstep(control_, &state_.failed, what_is_known(limit), blame);
    });
  }

  // As wait_in_lockstep, but a thread that fails, now or before, ends here, where the space has ends for it
  // (S::leave): no path joins the straight one again. The threads that are left no longer sync with it.
  template <class Attempt, class Blame>
  NL_FN void wait_or_leave(Attempt&& attempt, const Blame& blame) {
    if (!Space::all_in_lockstep(failed_ == 0)) Space::leave();
    poll_in_lockstep<Space>(control_, attempt, [&](Wait limit) {
      give_up_in_lockstep(control_, &state_.failed, what_is_known(limit), blame);
      Space::leave();
    });
  }

  // As if a wait of this thread had failed, for a reason that has been recorded.
  NL_FN void stop() { failed_ = 1; }

  // Gives up for another reason than a wait that has ended; `kind` and `blame` say which.
  template <class Blame>
  NL_FN void fail(Wait kind, const Blame& blame) {
    if (failed_ != 0) return;
    failed_ = 1;
    give_up(control_, &state_.failed, what_is_known(kind), blame);
  }

  // A sync of the group at a place where it costs nothing: after this thread has sent and before it waits.
  // Every session needs one sync before close(), so that no thread is still to read the epoch that close()
  // overwrites.
  NL_FN void sync_while_in_flight() {
    if (!synced_) coop_.sync();
    synced_ = true;
  }

  // [F2] A sync after which the failure of one thread is the failure of all: what needs the whole group's
  // work (a published chunk) or the whole group's waiting (a read one) must not go on with a part of it.
  NL_FN void sync_failure() {
    if constexpr (requires(C coop) {
                    { coop.sync_any(true) } -> std::same_as<bool>;
                  }) {
      if (coop_.sync_any(failed_ != 0)) failed_ = 1;
    } else {
      coop_.sync();
      if (failed_ == 0)
        failed_ = Space::template load<exec::Order::relaxed, exec::Scope::device>(state_.failed);
    }
  }

  // All threads of the group call it, last. Hands the epoch to the next session.
  NL_FN void close() {
    if (coop_.thread_rank() == 0) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(state_.epoch, epoch_);
    }
  }

 private:
  NL_FN FaultRecord what_is_known(Wait outcome) const {
    FaultRecord fault{};
    fault.kind = static_cast<std::uint32_t>(outcome);
    fault.rank = view_.rank();
    fault.peer = -1;
    fault.collective = collective_;
    fault.epoch = epoch_;
    fault.region = region_;
    return fault;
  }

  // Out of line, so that the straight path has neither the code nor its branches: a compiler that cannot see
  // threads in lockstep come together again checks for it at every vote that follows.
  template <class Blame>
  NL_COLD_FN static void give_up(Control<Space> control, typename Space::Word* failed, FaultRecord fault,
                                 Blame blame) {
    Space::template store<exec::Order::relaxed, exec::Scope::device>(*failed, 1u);
    blame(fault);
    report_fault<Space>(control, fault);
  }
  template <class Blame>
  NL_COLD_FN static void give_up_in_lockstep(Control<Space> control, typename Space::Word* failed,
                                             FaultRecord fault, Blame blame) {
    Space::template store<exec::Order::relaxed, exec::Scope::device>(*failed, 1u);
    blame(fault);
    // Those who miss nobody leave the record to those who can name somebody, if there are any.
    const bool nobody_knows = Space::all_in_lockstep(fault.peer < 0);
    if (fault.peer >= 0 || nobody_knows) report_fault<Space>(control, fault);
  }

  // Lines (LL's and LL128's) and flags of 2^32 epochs ago would look current again, so each bank is cleared
  // once as numbering starts anew. [E2] our clearing < fence < our next store (seen by the peer) < the peer's
  // fence at its end of that epoch < the peer's next store into the cleared bank. Both sides run the fence:
  // touches_wrap() covers the epoch after, too. Static and by value, so that the session itself never has to
  // leave its registers.
  NL_COLD_FN static void wrap(V view, C coop, std::uint32_t epoch, bool failed) {
    coop.sync();  // nobody still reads what is cleared here
    if (epoch >= Space::kLastEpoch - 1 && !failed) {
      const int bank = bank_of(epoch);
      for (int source = 0; source < view.nranks(); ++source) {
        for (std::uint32_t slot = static_cast<std::uint32_t>(coop.thread_rank()); slot < view.slots();
             slot += static_cast<std::uint32_t>(coop.size())) {
          Space::store_line(view.line(view.rank(), bank, source, slot), 0, 0);
        }
        if (coop.thread_rank() == 0) {
          Space::template store<exec::Order::relaxed, exec::Scope::system>(
              view.flag(view.rank(), bank, source), 0u);
        }
        // Word by word: threads in lockstep need not be together here, as one of them may have failed.
        for (std::uint32_t line = static_cast<std::uint32_t>(coop.thread_rank()); line < view.wide_lines();
             line += static_cast<std::uint32_t>(coop.size())) {
          Space::clear_word(view.wide(view.rank(), bank, source, line));
        }
      }
    }
    order(coop);
  }

  // Of the threads of a group one heard the peer, others cleared, yet another stores next. The sync hands the
  // clearing to all, then each runs the fence, and the sync that begins the next epoch (or E3) stands between
  // the fence of the one that heard and the store of the one that is next.
  NL_FN static void order(C& coop) {
    coop.sync();
    Space::fence_system();
  }

  V view_;
  C coop_;
  RegionState<Space>& state_;
  Control<Space> control_;
  std::uint32_t region_;
  std::uint32_t collective_;
  std::uint32_t epoch_ = 0;
  std::uint32_t failed_ = 0;
  bool used_ = false;
  bool synced_ = false;
  int orders_ = 0;  // epochs that still begin with a fence
};

}  // namespace nearlight::protocol
