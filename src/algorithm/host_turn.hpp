// A kernel asks its host to do a call and waits until it is done: how a call of GPU ranks is made by the CPU
// (runtime/staged_path.hpp). One thread on either side; the words lie where both reach them.
//
// The device stores what it asks for, then the number of the request with release; the host takes it with
// acquire [H1], does the call and stores the same number as the answer with release, which the device takes
// with acquire [H2]. So the host reads what the device wrote before it asked, and the device what the host
// wrote before it answered: the words here and the staged data beside them alike. Numbers are only compared
// for equality and go up by one, so they may wrap.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/poll.hpp>

namespace nearlight::algorithm {

// What is asked for. The meaning of the numbers is runtime's (collective, DataType, ReduceOp).
struct HostRequest {
  std::uint32_t collective = 0, type = 0, op = 0;
  std::uint64_t count = 0;   // elements, all of them in the staging buffer
  std::uint64_t factor = 0;  // bits, of a pre-multiplied sum
};

// `Word`: an execution space's; the CPU's and the GPU's are the same.
template <class Word>
struct HostTurn {
  static constexpr int kWords = 7;

  // The device's. `asked` is only ever written by it, one kernel after the other.
  alignas(128) Word asked;
  Word request[kWords];
  Word gave_up;  // non-zero: a wait for an answer ran into its limit
  // The host's.
  alignas(128) Word answered;
  // Either's: non-zero means that nothing is asked and no answer is waited for any more.
  alignas(128) Word stopped;
};

// The device's side. `limit_ns` bounds the wait; it should be longer than what the host gives itself, which
// knows better whom it misses.
template <exec::ExecSpace S>
NL_FN void take_host_turn(HostTurn<typename S::Word>& turn, const HostRequest& request,
                          std::uint64_t limit_ns) {
  using exec::Order;
  using exec::Scope;
  if (S::template load<Order::relaxed, Scope::system>(turn.stopped) != 0) return;
  const auto put = [&turn](int index, std::uint64_t value) {
    S::template store<Order::relaxed, Scope::system>(turn.request[index], static_cast<std::uint32_t>(value));
  };
  put(0, request.collective);
  put(1, request.type);
  put(2, request.op);
  put(3, request.count);
  put(4, request.count >> 32);
  put(5, request.factor);
  put(6, request.factor >> 32);
  const std::uint32_t number = S::template load<Order::relaxed, Scope::system>(turn.asked) + 1;
  S::template store<Order::release, Scope::system>(turn.asked, number);  // [H1]
  protocol::Control<S> control;
  control.abort = &turn.stopped;
  control.timeout_ns = limit_ns;
  const protocol::Wait outcome = protocol::poll<S>(control, [&turn, number] {
    return S::template load<Order::acquire, Scope::system>(turn.answered) == number;  // [H2]
  });
  if (outcome == protocol::Wait::timeout) {
    S::template store<Order::relaxed, Scope::system>(turn.gave_up, 1u);
    S::template store<Order::relaxed, Scope::system>(turn.stopped, 1u);
  }
}

// The host's side: one look. Where there is a request that is not `served` yet, `run(request)` does it, and
// true is answered; false leaves it unanswered, which the caller does only once it has set `stopped`. Returns
// whether there was one.
template <exec::ExecSpace S, class Run>
bool serve_host_turn(HostTurn<typename S::Word>& turn, std::uint32_t& served, Run&& run) {
  using exec::Order;
  using exec::Scope;
  const std::uint32_t number = S::template load<Order::acquire, Scope::system>(turn.asked);  // [H1]
  if (number == served) return false;
  const auto take = [&turn](int index) {
    return std::uint64_t{S::template load<Order::relaxed, Scope::system>(turn.request[index])};
  };
  HostRequest request;
  request.collective = static_cast<std::uint32_t>(take(0));
  request.type = static_cast<std::uint32_t>(take(1));
  request.op = static_cast<std::uint32_t>(take(2));
  request.count = take(3) | take(4) << 32;
  request.factor = take(5) | take(6) << 32;
  served = number;
  if (run(request)) S::template store<Order::release, Scope::system>(turn.answered, number);  // [H2]
  return true;
}

// The host's, for a reset, with the device idle and `stopped` set: what has been asked for by now is not
// served any more. It stands between the end of what the reset ends and the first thing that works again.
template <exec::ExecSpace S>
void forget_host_turns(HostTurn<typename S::Word>& turn, std::uint32_t& served) {
  served = S::template load<exec::Order::relaxed, exec::Scope::system>(turn.asked);
}

}  // namespace nearlight::algorithm
