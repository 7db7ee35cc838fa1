#include "tests/property/plan.hpp"

#include <algorithm>
#include <iterator>
#include <ostream>

namespace nearlight::test {

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  out << plan.nranks << " ranks, " << plan.slots << " slots, chunks of " << plan.chunk_bytes << " bytes";
  for (const PlannedCall& planned : plan.calls) {
    out << "\n  " << planned.times << " x " << planned.call.to_string() << "; send/recv places:";
    for (const Place& place : planned.place) {
      out << ' ' << place.send << '/';
      if (place.in_place) {
        out << "in place";
      } else {
        out << place.recv;
      }
    }
  }
  return out;
}

std::string run_plan(Kind kind, const Plan& plan) {
  runtime::Options options = patient();
  options.slots = plan.slots;
  options.chunk_bytes = plan.chunk_bytes;
  std::size_t most_bytes = 0;
  for (const PlannedCall& planned : plan.calls) {
    most_bytes = std::max(most_bytes, planned.call.count * size_of(planned.call.type));
  }
  return run_communicators(
      kind, plan.nranks, options, [&](runtime::Communicator& comm, Exchange& exchange, Problems& problems) {
        Caller caller(comm, most_bytes);
        std::vector<std::uint64_t> hashes;
        for (const PlannedCall& planned : plan.calls) {
          const Place& place = planned.place[static_cast<std::size_t>(comm.rank())];
          const std::uint64_t first = caller.run(planned.call, place, problems);
          for (int again = 1; again < planned.times; ++again) {
            if (caller.run(planned.call, place, problems) == first) continue;
            problems.add("%s: other bits when run again", planned.call.to_string().c_str());
          }
          hashes.push_back(first);
        }
        std::vector<std::uint64_t> all(hashes.size() * static_cast<std::size_t>(comm.nranks()));
        const Status gathered =
            exchange.all_gather(std::as_bytes(std::span(hashes)), std::as_writable_bytes(std::span(all)),
                                Deadline::after(std::chrono::seconds(120)));
        if (!gathered.ok()) return problems.add("all_gather of the test: %s", gathered.to_string().c_str());
        for (std::size_t i = 0; i < hashes.size(); ++i) {
          if (hashes[i] == all[i]) continue;
          problems.add("%s: other bits than rank 0", plan.calls[i].call.to_string().c_str());
        }
      });
}

Plan matrix(int nranks) {
  // Around the packs of 8 bytes, the vectors of 16, the 256 bytes of a round, and far beyond; primes among
  // them.
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 7, 9, 17, 31, 33, 64, 127, 1021, 4099, 65537};
  constexpr std::uint64_t kMost = kSlowDown == 1 ? 65537 : kSlowDown < 10 ? 4099 : 1021;
  constexpr std::optional<route::Protocol> kProtocols[] = {std::nullopt, route::Protocol::ll,
                                                           route::Protocol::simple};
  constexpr Values kValues[] = {Values::numbers, Values::bits};
  Plan plan;
  plan.nranks = nranks;
  std::uint32_t number = 0;
  for (const std::uint64_t count : kCounts) {
    if (count > kMost) continue;
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        if (count == kMost && op != ReduceOp::sum) continue;  // the slow one once a type
        for (const auto& protocol : kProtocols) {
          PlannedCall planned;
          planned.times = 2 + static_cast<int>(number % 2);
          planned.call = {type, op, count, protocol, {kValues[number % std::size(kValues)], number}};
          for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(nranks); ++rank) {
            // All offsets of an element within 16 bytes come up, sender and receiver apart.
            planned.place.push_back({.send = (number + rank * 3) % 11,
                                     .recv = (number / 3 + rank * 5) % 13,
                                     .in_place = (number + rank) % 5 == 0});
          }
          plan.calls.push_back(planned);
          ++number;
        }
      }
    }
  }
  return plan;
}

}  // namespace nearlight::test
