// The first failure of a communicator, written once where the host can read it, even after a GPU rank
// stopped.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::protocol {

enum class Wait : std::uint32_t { ok = 0, timeout = 1, aborted = 2 };

// Plain data in host-visible memory; valid once `valid` reads 1 (acquire).
struct FaultRecord {
  std::uint32_t kind;        // a Wait that is not ok
  std::int32_t rank;         // who noticed
  std::int32_t peer;         // whom it waited for; -1 when unknown
  std::uint32_t collective;  // nearlight::Collective
  std::uint32_t epoch;       // of the region
  std::uint32_t region;      // CTA index
  std::uint32_t slot;        // LL slot, or chunk of the message for the simple protocol
  std::uint32_t expected;    // flag value waited for
  std::uint32_t seen;        // flag value found instead
  std::uint32_t reserved;
  std::uint64_t time_ns;  // S::now_ns() when it was noticed
};

// Where a rank reports, and what it must obey. `claim` is private to the rank; the others are host-visible.
template <class S>
struct Control {
  typename S::Word* abort = nullptr;  // non-zero: give up every wait
  typename S::Word* claim = nullptr;  // 0 until a thread takes the right to write `record`
  typename S::Word* valid = nullptr;  // 1 once `record` is whole
  FaultRecord* record = nullptr;
  std::uint64_t timeout_ns = 0;  // of one wait
  // When every wait ends, by S::now_ns(); 0: never. In spaces where calls may have an end alone
  // (S::kCallsMayEnd).
  std::uint64_t end_ns = 0;
};

// Writes the record if it is the first, and makes every other wait of this rank end.
template <exec::ExecSpace S>
NL_COLD_FN void report_fault(Control<S> control, FaultRecord fault) {
  using exec::Order;
  using exec::Scope;
  if (control.claim != nullptr && S::claim(*control.claim)) {
    fault.time_ns = S::now_ns();
    *control.record = fault;
    // [F1] pairs with the host's acquire load of `valid`: the record is whole when valid reads 1.
    S::template store<Order::release, Scope::system>(*control.valid, 1u);
  }
  if (control.abort != nullptr) S::template store<Order::relaxed, Scope::system>(*control.abort, 1u);
}

}  // namespace nearlight::protocol
