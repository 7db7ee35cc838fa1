#include "tests/property/plan.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ostream>

namespace nearlight::test {

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  out << plan.nranks << " ranks, " << plan.slots << " slots, chunks of " << plan.chunk_bytes << " bytes, "
      << plan.packets << " packets, " << plan.lines << " lines";
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
  options.packets = plan.packets;
  options.lines = plan.lines;
  options.deterministic =
      false;  // every algorithm may be asked for; none is chosen on CPUs that would not be
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

namespace {

// The same call by each of the two-shots that go with its protocol. Sums of exact numbers, where what is
// added in the order of arrival must come to the same.
void add_two_shots(Plan& plan, PlannedCall planned) {
  for (const auto algorithm : {route::Algorithm::two_shot, route::Algorithm::two_shot_atomic}) {
    if (!algorithm::go_together(algorithm, *planned.call.protocol)) continue;
    if (!algorithm::reduces(algorithm, planned.call.type, planned.call.op)) continue;
    planned.call.algorithm = algorithm;
    if (algorithm == route::Algorithm::two_shot_atomic) planned.call.source.values = Values::pattern;
    plan.calls.push_back(planned);
  }
}

}  // namespace

Plan matrix(int nranks) {
  // Around the packs of 8 bytes, the vectors of 16, the 256 bytes of a round, and far beyond; primes among
  // them.
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 7, 9, 17, 31, 33, 64, 127, 1021, 4099, 65537};
  constexpr std::uint64_t kMost = kSlowDown == 1 ? 65537 : kSlowDown < 10 ? 4099 : 1021;
  constexpr std::optional<route::Protocol> kProtocols[] = {std::nullopt, route::Protocol::ll,
                                                           route::Protocol::simple, route::Protocol::sentinel,
                                                           route::Protocol::ll128};
  constexpr Values kValues[] = {Values::numbers, Values::bits};
  Plan plan;
  plan.nranks = nranks;
  std::uint32_t number = 0;
  for (const std::uint64_t count : kCounts) {
    if (count > kMost) continue;
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        if (!algorithm::has_own_code(type, op)) continue;     // see all_types()
        if (count == kMost && op != ReduceOp::sum) continue;  // the slow one once a type
        for (const auto& protocol : kProtocols) {
          if (protocol && !algorithm::carries(*protocol, type)) continue;
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
          if (protocol && nranks > 1) add_two_shots(plan, planned);
          ++number;
        }
      }
    }
  }
  return plan;
}

namespace {

// Appends a call with every rank's buffers somewhere else.
PlannedCall placed(const Plan& plan, const Call& call, int times) {
  const auto number = static_cast<std::uint32_t>(plan.calls.size());
  PlannedCall planned;
  planned.times = times;
  planned.call = call;
  for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(plan.nranks); ++rank) {
    planned.place.push_back({.send = (number + rank * 3) % 17,
                             .recv = (number / 3 + rank * 5) % 19,
                             .in_place = (number + rank) % 3 == 0});
  }
  return planned;
}
void add(Plan& plan, const Call& call, int times) { plan.calls.push_back(placed(plan, call, times)); }

}  // namespace

Plan all_types(int nranks) {
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 7, 31, 33, 255, 1023, 4099};
  constexpr Values kValues[] = {Values::numbers, Values::special, Values::bits};
  Plan plan;
  plan.nranks = nranks;
  std::uint64_t number = static_cast<std::uint64_t>(nranks);
  for (const std::uint64_t count : kCounts) {
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        ++number;
        // The larger ones for every third pair, other ones on other numbers of ranks; under a sanitizer none.
        if (count > 255 && (number % 3 != 0 || kSlowDown >= 10)) continue;
        for (const auto protocol : algorithm::kProtocols) {
          if (!algorithm::carries(protocol, type)) continue;
          // The larger counts by one of the protocols in turn.
          auto turn = algorithm::kProtocols[number / 3 % std::size(algorithm::kProtocols)];
          if (!algorithm::carries(turn, type)) turn = route::Protocol::ll128;
          if (count > 33 && turn != protocol) continue;
          Call call{type, op, count, protocol, {kValues[(number + count) % std::size(kValues)], number}};
          add(plan, call, 2);
          if (count > 33 && nranks != 3) continue;
          add_two_shots(plan, placed(plan, call, 2));
        }
      }
    }
  }
  return plan;
}

Plan all_types_large(int nranks) {
  Plan plan;
  plan.nranks = nranks;
  plan.slots = plan.chunk_bytes = plan.packets = plan.lines = 0;  // the defaults
  std::uint64_t number = 0;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      ++number;
      const Source source{number % 2 == 0 ? Values::numbers : Values::bits, number};
      add(plan, {type, op, 65537 / kSlowDown, std::nullopt, source}, 1);
    }
    // And a million once a type, each with another operator.
    add(plan,
        {type,
         kReduceOps[number / 6 % std::size(kReduceOps)],
         ((1u << 20) + 3) / kSlowDown / kSlowDown,
         std::nullopt,
         {Values::numbers, number}},
        1);
  }
  return plan;
}

Plan product(int nranks, DataType type) {
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 7, 31, 33, 255, 1023, 4099, 65537, (1u << 20) + 3};
  // Elements; the last two places are another one on each rank.
  constexpr Place kPlaces[] = {{.send = 0, .recv = 0},        {.send = 1, .recv = 1},
                               {.send = 3, .recv = 0},        {.send = 0, .recv = 1},
                               {.send = 0, .in_place = true}, {.send = 1, .in_place = true},
                               {.send = 5, .recv = 7},        {.send = 11, .in_place = true}};
  constexpr Values kValues[] = {Values::numbers, Values::special, Values::bits};
  Plan plan;
  plan.nranks = nranks;
  plan.slots = plan.chunk_bytes = plan.packets = plan.lines = 0;  // the defaults
  std::uint64_t number = static_cast<std::uint64_t>(type);
  for (const ReduceOp op : kReduceOps) {
    for (const std::uint64_t count : kCounts) {
      for (const Place& place : kPlaces) {
        PlannedCall planned;
        planned.times = 1;
        for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(nranks); ++rank) {
          planned.place.push_back(place);
          if (place.send > 3) planned.place.back().send = (place.send + 3 * rank) % 16;
          if (place.recv > 3) planned.place.back().recv = (place.recv + 5 * rank) % 16;
        }
        ++number;
        planned.call = {
            type, op, count / kSlowDown, std::nullopt, {kValues[number % std::size(kValues)], number}};
        plan.calls.push_back(planned);
        const route::Protocol protocol = algorithm::kProtocols[number / 3 % std::size(algorithm::kProtocols)];
        if (!algorithm::carries(protocol, type)) continue;
        planned.call.protocol = protocol;
        const std::size_t before = plan.calls.size();
        if (number % 2 == 0) add_two_shots(plan, planned);
        if (plan.calls.size() == before) plan.calls.push_back(planned);
      }
    }
  }
  return plan;
}

Plan tails(int nranks) {
  std::vector<std::uint64_t> bytes;
  for (std::uint64_t length = 2; length <= 66; length += 2) bytes.push_back(length);
  for (const std::uint64_t round : {120u, 256u, 480u, 512u, 16u * 1024, 128u * 1024}) {
    if (kSlowDown > 1 && round > 1024) continue;
    for (const std::uint64_t length : {round - 2, round, round + 2}) bytes.push_back(length);
  }
  Plan plan;
  plan.nranks = nranks;
  plan.slots = 64;
  plan.chunk_bytes = 512;
  plan.packets = 32;
  plan.lines = 4;
  std::uint32_t number = 0;
  for (const std::uint64_t length : bytes) {
    for (const auto protocol : algorithm::kProtocols) {
      PlannedCall planned;
      planned.call = {DataType::bf16, ReduceOp::sum, length / 2, protocol, {Values::numbers, number}};
      for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(nranks); ++rank) {
        // Every second rank's buffers end right in front of the page that must not be touched.
        planned.place.push_back({.send = rank % 2 == 0 ? 0 : (number + rank) % 8,
                                 .recv = rank % 2 == 0 ? 0 : (number / 2 + rank) % 8,
                                 .in_place = number % 3 == 2});
      }
      plan.calls.push_back(planned);
      add_two_shots(plan, planned);
      ++number;
    }
  }
  return plan;
}

Plan millions() {
  Plan plan;
  plan.nranks = 3;
  plan.slots = plan.chunk_bytes = plan.packets = plan.lines = 0;  // the defaults
  for (const auto protocol : algorithm::kProtocols) {
    PlannedCall planned;
    planned.times = 1;
    planned.call = {
        DataType::f32, ReduceOp::sum, 10'556'587 / kSlowDown / kSlowDown, protocol, {Values::pattern, 1}};
    planned.place = {{.send = 0, .recv = 0}, {.send = 1, .recv = 3}, {.send = 2, .in_place = true}};
    plan.calls.push_back(planned);
  }
  return plan;
}

}  // namespace nearlight::test
