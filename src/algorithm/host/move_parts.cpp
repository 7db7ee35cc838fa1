#include "algorithm/byte_buffer.hpp"
#include "algorithm/host/bulk.hpp"
#include "algorithm/host/parts.hpp"
#include "algorithm/host/parts_session.hpp"
#include "algorithm/parts_simple.hpp"

namespace nearlight::algorithm::host {

namespace {

template <class Cells, class SessionT, class Hooks>
void move_in(SessionT& session, const PartsCall& call, const Hooks& hooks) {
  using Bytes = ByteBuffer<exec::HostSpace>;
  // Each part has its own length.
  const Bytes input(const_cast<void*>(call.all.send), 0), output(call.all.recv, 0);
  if (call.agrees) {
    algorithm::move_parts<LlUnits, protocol::kMaxRanks, true>(session, Share{0, 1}, call.parts, input, output,
                                                              hooks);
  } else if (call.all.protocol == Protocol::ll) {
    algorithm::move_parts<LlUnits, protocol::kMaxRanks>(session, Share{0, 1}, call.parts, input, output,
                                                        hooks);
  } else {
    move_parts_simple<1, Cells>(session, Share{0, 1}, call.parts, input, output, hooks);
  }
}

}  // namespace

void move_parts(const PartsCall& call) {
  if (has_test_hooks(call.all)) {
    with_hooked_session(call.all, [&](auto& session, const auto& hooks) {
      move_in<HookedSpace::Cells<std::uint8_t, ReduceOp::sum>>(session, call, hooks);
    });
  } else {
    with_session(call.all, [&](auto& session, const auto& hooks) {
      move_in<Bulk<std::uint8_t, ReduceOp::sum>>(session, call, hooks);
    });
  }
}

}  // namespace nearlight::algorithm::host
