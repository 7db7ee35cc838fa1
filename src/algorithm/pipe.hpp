// Pipes: what one rank sends to one other one, message after message, in the order in which both have asked
// for it. Nobody else has a part in it: a pipe has turns of its own, counted by its two ends, and a rank that
// neither sends nor receives hears nothing.
//
// A lane of pipes (PipeView) is a region of its own (protocol/region.hpp) and is used by one group of threads
// a pipe end at a time. A turn moves up to `span` units of a message, by lines of LL or by cells with one
// release flag; each of the two ways has turns and credits of its own. A message takes one way, which both
// ends choose by its size alone, so that its turns are the same on both.
//
// *Credits.* There are two banks, by the parity of the turn. The receiver stores the number of the last turn
// that it has read into a word of the sender's memory, and the sender stores for a turn only once the one two
// turns before has been read. So a sender is ahead by two turns at most, and waits otherwise.
//
// Orderings. Lines: [L1] pairs with [L2]. The group's reads of a turn < sync < [P1] store of the credit <
// [P2] load of it by each thread of the sender < its stores for the turn after the next. [P1] and [P2] are
// relaxed: a store that depends on what was loaded is not seen before that load. Cells: the group's stores <
// sync < [S1] release of the flag pairs with [S2] acquire < sync < the group's loads < sync < [P3] release of
// the credit pairs with [P4] acquire < sync < the group's stores. Lines of 2^32 turns ago would look current
// again, so the receiver clears each bank as the numbers start anew, before a credit that then releases [P5],
// and that the sender acquires. A flag is stored in each turn of its bank, and never is that old.
// Between two kernels (CPU: calls) of one end lies the boundary of both ([E3], protocol/session.hpp).
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include "algorithm/byte_buffer.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/parts_simple.hpp"
#include "algorithm/pipe_lane.hpp"

namespace nearlight::algorithm {

// One end of a pipe at work on its queue, in one lane. All threads of the session's group make the same
// calls. kUnroll: vectors a thread has in flight.
template <int kUnroll, class Bulk, class SessionT, class Hooks>
class PipeEnd {
 public:
  using V = std::remove_cvref_t<decltype(std::declval<SessionT&>().view())>;
  using S = typename V::Space;
  using Bytes = ByteBuffer<S>;

  // `lane`: index of it; `told`: whether messages are compared.
  NL_FN PipeEnd(SessionT& session, PipeState<S>& state, const PipeQueue& queue, const Message* messages,
                std::uint32_t lane, bool told, const Hooks& hooks)
      : session_(session),
        hooks_(hooks),
        words_(queue.sends != 0 ? state.sent : state.received),
        messages_(messages),
        peer_(queue.peer),
        sends_(queue.sends != 0),
        told_(told),
        lane_(lane),
        at_(queue.first),
        end_(queue.first + queue.count) {
    // The kernel before wrote them, whose boundary orders it.
    for (int carrier = 0; carrier < kCarriers; ++carrier)
      turn_[carrier] = S::template load<exec::Order::relaxed, exec::Scope::device>(words_[carrier]);
    enter();
  }
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;

  NL_FN bool done() const { return at_ == end_; }

  // One look: whether the next turn finds the other side where it needs it. (The lines behind the first come
  // without anything that their sender would wait for.)
  NL_FN bool ready() const {
    std::uint32_t seen;
    return next_wait().is_over(seen);
  }
  NL_FN PipeWait<V> next_wait() const {
    return wait_of(is_telling_ ? Carrier::lines : messages_[at_].carrier, 0);
  }

  // The next turn; waits for the other side. Where the session has failed nothing is sent and nothing is
  // waited for, but all threads still go through all of it together.
  NL_FN void turn() {
    const Message& message = messages_[at_];
    if (is_telling_) {
      is_telling_ = false;
      return sends_ ? tell(message) : hear(message);
    }
    const Bytes bytes(message.data, message.bytes);
    const std::uint32_t here = units_here();
    begin_time();
    if (message.carrier == Carrier::lines) {
      sends_ ? send_lines(bytes, here) : receive_lines(bytes, here);
    } else {
      sends_ ? send_cells(bytes, here) : receive_cells(bytes, here);
    }
    base_ += std::uint64_t{message.lanes} * message.span;
    if (base_ < units_) return;
    ++at_;
    enter();
  }

  // Last: hands the turns on to the next call.
  NL_FN void close() {
    if constexpr (kKeepsTime) {
      if (session_.failed()) {
        if (!done()) begin_time();
        hooks_.gave_up();
      }
    }
    session_.coop().sync();  // all have loaded what is overwritten here
    if (session_.coop().thread_rank() != 0) return;
    for (int carrier = 0; carrier < kCarriers; ++carrier)
      S::template store<exec::Order::relaxed, exec::Scope::device>(words_[carrier], turn_[carrier]);
  }

 private:
  // Hooks that write down when each turn was (traced_turns.hpp) are told which it is. Of a thread that has
  // failed they hear no more.
  static constexpr bool kKeepsTime = requires(const Hooks& hooks) { hooks.begin(0u, 0u, true); };
  NL_FN void begin_time() const {
    if constexpr (kKeepsTime) {
      const bool by_lines = messages_[at_].carrier == Carrier::lines;
      const std::uint64_t unit = by_lines ? sizeof(exec::Pack) : sizeof(exec::Vec);
      const std::uint64_t left = messages_[at_].bytes - base_ * unit, most = units_here() * unit;
      hooks_.begin(turn_[0] + turn_[1] + 1, static_cast<std::uint32_t>(left < most ? left : most), by_lines);
    }
  }
  NL_FN void note_paid() const {
    if constexpr (kKeepsTime) {
      if (!session_.failed()) hooks_.paid();
    }
  }
  NL_FN void at(DelayPoint point) const {
    if (!session_.failed()) hooks_.at(point);
  }

  // Of the message that is on.
  NL_FN std::uint32_t units_here() const {
    const std::uint64_t left = units_ - base_;
    return static_cast<std::uint32_t>(left < messages_[at_].span ? left : messages_[at_].span);
  }

  NL_FN std::uint32_t thread() const { return static_cast<std::uint32_t>(session_.coop().thread_rank()); }
  NL_FN std::uint32_t width() const { return static_cast<std::uint32_t>(session_.coop().size()); }

  // Goes on to the first message that has a part for this lane.
  NL_FN void enter() {
    for (; at_ < end_; ++at_) {
      const Message& message = messages_[at_];
      const Bytes bytes(message.data, message.bytes);
      units_ = message.carrier == Carrier::lines ? bytes.packs() : bytes.vecs();
      base_ = std::uint64_t{lane_} * message.span;
      if (lane_ >= message.lanes || base_ >= units_) continue;
      is_telling_ = told_ && lane_ == 0;
      return;
    }
  }

  NL_FN PipeWait<V> wait_of(Carrier carrier, std::uint32_t slot) const {
    return {session_.view(), peer_, sends_, carrier, turn_[static_cast<int>(carrier)], slot};
  }

  // Lines: each thread for itself. False: nothing may be stored.
  NL_FN bool wait_for_credit() {
    const PipeWait<V> wait = wait_of(Carrier::lines, 0);
    if (wait.turn() > protocol::kFirstWrapped + 1) {
      return session_.wait_in_lockstep(
          [&] { return wait.is_paid(wait.template credit<exec::Order::relaxed>()); }, wait);  // [P2]
    }
    return session_.wait_in_lockstep(
        [&] { return wait.is_paid(wait.template credit<exec::Order::acquire>()); }, wait);  // [P5]
  }
  // After this thread has read its part of the turn.
  NL_FN void give_credit(Carrier carrier) {
    session_.sync_failure();
    const V& view = session_.view();
    const std::uint32_t turn = turn_[static_cast<int>(carrier)];
    auto& word = view.credit(peer_, view.rank(), static_cast<int>(carrier));
    if (carrier == Carrier::lines && turn < S::kLastEpoch - 1) {
      if (thread() == 0 && !session_.failed())
        S::template store<exec::Order::relaxed, exec::Scope::system>(word, turn);  // [P1]
      return;
    }
    if (carrier == Carrier::lines && !session_.failed()) clear_lines(session_, peer_, turn);
    if (thread() == 0 && !session_.failed())
      S::template store<exec::Order::release, exec::Scope::system>(word, turn);  // [P3] [P5]
  }
  NL_COLD_FN static void clear_lines(SessionT& session, int peer, std::uint32_t turn) {
    const V& view = session.view();
    for (auto slot = static_cast<std::uint32_t>(session.coop().thread_rank()); slot < view.slots();
         slot += static_cast<std::uint32_t>(session.coop().size())) {
      S::store_line(view.line(view.rank(), protocol::bank_of(turn), peer, slot), 0, 0);
    }
    session.coop().sync();
  }

  NL_FN std::uint32_t next_turn(Carrier carrier) {
    std::uint32_t& turn = turn_[static_cast<int>(carrier)];
    return turn = protocol::next_epoch<S>(turn);
  }

  // What the message is, in a turn of lane 0 before it.
  static NL_FN exec::Pack told_of(const Message& message) {
    return message.bytes | std::uint64_t{message.type} << 56;
  }
  NL_FN void tell(const Message& message) {
    const bool may = wait_for_credit();
    const std::uint32_t turn = next_turn(Carrier::lines);
    if (may && thread() == 0) protocol::ll_send(session_.view(), peer_, 0, told_of(message), turn);
  }
  NL_FN void hear(const Message& message) {
    const V& view = session_.view();
    const PipeWait<V> wait = wait_of(Carrier::lines, 0);
    exec::Pack told = 0;
    const bool arrived = session_.wait_in_lockstep(
        [&] { return protocol::ll_try_receive(view, peer_, 0, wait.turn(), told); }, wait);
    next_turn(Carrier::lines);
    if (arrived && told != told_of(message) && thread() == 0) {
      session_.fail(kMismatch, Mismatch{peer_, wait.turn(), told_of(message), told});
    }
    give_credit(Carrier::lines);
  }
  struct Mismatch {
    int peer;
    std::uint32_t turn;
    exec::Pack own, other;

    static NL_FN std::uint32_t bytes_of(exec::Pack told) {
      const std::uint64_t bytes = told << 8 >> 8;
      return bytes < 0xffffffffu ? static_cast<std::uint32_t>(bytes) : 0xffffffffu;
    }
    NL_FN void operator()(protocol::FaultRecord& fault) const {
      fault.peer = peer;
      fault.epoch = turn;
      fault.expected = bytes_of(own);
      fault.seen = bytes_of(other);
      fault.slot = static_cast<std::uint32_t>(own >> 56 << 16 | other >> 56);
    }
  };

  NL_FN void send_lines(const Bytes& bytes, std::uint32_t here) {
    const V& view = session_.view();
    // In flight before anything is known of the credit.
    exec::Pack first = 0;
    if (thread() < here) first = bytes.load_pack(bytes.place_of_pack(base_ + thread()));
    const bool may = wait_for_credit();
    const std::uint32_t turn = next_turn(Carrier::lines);
    at(DelayPoint::before_publish);
    if (may && thread() < here) protocol::ll_send(view, peer_, thread(), first, turn);
    for (std::uint32_t slot = thread() + width(); may && slot < here; slot += width()) {
      protocol::ll_send(view, peer_, slot, bytes.load_pack(bytes.place_of_pack(base_ + slot)), turn);
    }
    at(DelayPoint::published);
  }

  NL_FN void receive_lines(const Bytes& bytes, std::uint32_t here) {
    const V& view = session_.view();
    constexpr auto kRun = static_cast<std::uint32_t>(S::kLockstep);
    // Threads in lockstep go through it together, with a slot or without.
    for (std::uint32_t run = thread() / kRun * kRun; run < here; run += width()) {
      const std::uint32_t slot = run + thread() % kRun;
      const PipeWait<V> wait = wait_of(Carrier::lines, slot < here ? slot : here - 1);
      exec::Pack got = 0;
      const bool arrived = session_.wait_in_lockstep(
          [&] { return slot >= here || protocol::ll_try_receive(view, peer_, slot, wait.turn(), got); },
          wait);
      if (!arrived) break;
      if (slot < here) bytes.store_pack(bytes.place_of_pack(base_ + slot), got);
    }
    next_turn(Carrier::lines);
    at(DelayPoint::after_arrival);
    at(DelayPoint::after_read);
    give_credit(Carrier::lines);
  }

  NL_FN void send_cells(const Bytes& bytes, std::uint32_t here) {
    const V& view = session_.view();
    const PipeWait<V> wait = wait_of(Carrier::cells, 0);
    if (thread() == 0) {
      session_.wait([&] { return wait.is_paid(wait.template credit<exec::Order::acquire>()); },
                    wait);  // [P4]
    }
    note_paid();
    session_.sync_failure();
    const std::uint32_t turn = next_turn(Carrier::cells);
    if (!session_.failed()) store_cells(bytes, here, turn);
    at(DelayPoint::before_publish);
    session_.sync_failure();
    if (thread() == 0 && !session_.failed()) {
      S::template store<exec::Order::release, exec::Scope::system>(
          view.flag(peer_, protocol::bank_of(turn), view.rank()), turn);  // [S1]
    }
    at(DelayPoint::published);
  }
  NL_FN void store_cells(const Bytes& bytes, std::uint32_t here, std::uint32_t turn) {
    const V& view = session_.view();
    const int bank = protocol::bank_of(turn);
    const std::uint32_t loose = cells_in_bulk(Bulk{}, bytes, base_, here);
    if constexpr (Bulk::kUsed) {
      if (loose > 0 && thread() == 0)
        Bulk::copy(&view.cell(peer_, bank, view.rank(), 0), bytes.vec_place(base_), loose);
    }
    for (std::uint32_t first = loose + thread(); first < here; first += width() * kUnroll) {
      exec::Vec own[kUnroll];
      NL_UNROLL
      for (int i = 0; i < kUnroll; ++i) {
        const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width();
        if (cell < here) own[i] = bytes.load_vec(base_ + cell);
      }
      NL_UNROLL
      for (int i = 0; i < kUnroll; ++i) {
        const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width();
        if (cell < here) S::store_cell(view.cell(peer_, bank, view.rank(), cell), own[i]);
      }
    }
  }

  NL_FN void receive_cells(const Bytes& bytes, std::uint32_t here) {
    const PipeWait<V> wait = wait_of(Carrier::cells, 0);
    if (thread() == 0) {
      session_.wait([&] { return wait.template flag<exec::Order::acquire>() == wait.turn(); }, wait);  // [S2]
    }
    session_.sync_failure();
    const std::uint32_t turn = next_turn(Carrier::cells);
    at(DelayPoint::after_arrival);
    if (!session_.failed()) load_cells(bytes, here, turn);
    at(DelayPoint::after_read);
    give_credit(Carrier::cells);
  }
  NL_FN void load_cells(const Bytes& bytes, std::uint32_t here, std::uint32_t turn) {
    const V& view = session_.view();
    const int bank = protocol::bank_of(turn);
    const std::uint32_t loose = cells_in_bulk(Bulk{}, bytes, base_, here);
    if constexpr (Bulk::kUsed) {
      if (loose > 0 && thread() == 0) {
        Bulk::copy_out(bytes.vec_place(base_),
                       reinterpret_cast<const char*>(&view.cell(view.rank(), bank, peer_, 0)), loose);
      }
    }
    for (std::uint32_t first = loose + thread(); first < here; first += width() * kUnroll) {
      exec::Vec got[kUnroll];
      NL_UNROLL
      for (int i = 0; i < kUnroll; ++i) {
        const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width();
        if (cell < here) got[i] = S::load_cell(view.cell(view.rank(), bank, peer_, cell));
      }
      NL_UNROLL
      for (int i = 0; i < kUnroll; ++i) {
        const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width();
        if (cell < here) bytes.store_vec(base_ + cell, got[i]);
      }
    }
  }

  SessionT& session_;
  const Hooks& hooks_;
  typename S::Word* words_;
  const Message* messages_;
  int peer_;
  bool sends_, told_;
  std::uint32_t lane_;
  std::uint32_t at_, end_;  // messages
  bool is_telling_ = false;
  std::uint64_t base_ = 0, units_ = 0;  // of the message that is on
  std::uint32_t turn_[kCarriers];
};

// Several ends by one thread, each as far as it gets: none waits for another one's peer. Ends with all of
// them done, or with a session that has failed.
template <class SessionT, class End>
void run_ends(SessionT& session, End* const* ends, int count) {
  for (;;) {
    int open = 0;
    bool moved = false;
    for (int i = 0; i < count && !session.failed(); ++i) {
      End& end = *ends[i];
      if (end.done()) continue;
      ++open;
      if (!end.ready()) continue;
      end.turn();
      moved = true;
    }
    if (open == 0 || session.failed()) return;
    if (moved) continue;
    const auto any_ready = [&] {
      for (int i = 0; i < count; ++i) {
        if (!ends[i]->done() && ends[i]->ready()) return true;
      }
      return false;
    };
    int first = 0;
    while (ends[first]->done()) ++first;
    session.wait(any_ready, ends[first]->next_wait());
  }
}

}  // namespace nearlight::algorithm
