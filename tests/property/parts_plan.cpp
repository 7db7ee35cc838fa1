#include "tests/property/parts_plan.hpp"

#include <array>
#include <iterator>
#include <random>
#include <vector>

#include "tests/support/checked_call.hpp"
#include "tests/support/checked_collective.hpp"

namespace nearlight::test {

namespace {

constexpr Collective kByParts[] = {Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
                                   Collective::reduce, Collective::all_to_all};
constexpr std::size_t kMostBytes = std::size_t{64} * 1024;

// Small: many rounds.
runtime::Options small_scratch() {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  options.packets = 32;
  options.lines = 4;
  return options;
}

std::vector<std::optional<route::Protocol>> protocols_of(Collective collective, DataType type) {
  std::vector<std::optional<route::Protocol>> all{std::nullopt, route::Protocol::ll, route::Protocol::simple};
  if (is_reduction(collective) && algorithm::has_sentinel(type)) all.emplace_back(route::Protocol::sentinel);
  return all;
}

// Another place on each rank and for each call.
Place place_of(int rank, std::uint64_t number) {
  Place place;
  place.send = static_cast<std::uint32_t>((number * 7 + static_cast<std::uint64_t>(rank) * 3) % kMaxPlace);
  place.recv = static_cast<std::uint32_t>((number * 5 + static_cast<std::uint64_t>(rank) * 11) % kMaxPlace);
  place.in_place = (number + static_cast<std::uint64_t>(rank)) % 3 == 0;
  return place;
}

std::string run_cases(Kind kind, int nranks, const std::vector<PartsCase>& cases) {
  return run_communicators(kind, nranks, small_scratch(),
                           [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
                             PartsCaller caller(comm, kMostBytes);
                             std::uint64_t number = 0;
                             for (const PartsCase& one : cases) {
                               caller.run(one, place_of(comm.rank(), number), problems);
                               ++number;
                             }
                           });
}

}  // namespace

std::string run_parts_matrix(Kind kind, int nranks) {
  std::vector<PartsCase> cases;
  std::uint64_t seed = 1;
  for (const Collective collective : kByParts) {
    for (const DataType type : kDataTypes) {
      for (const std::uint64_t count : {0u, 1u, 2u, 3u, 5u, 8u, 17u, 33u, 257u, 700u}) {
        for (const auto& protocol : protocols_of(collective, type)) {
          const int root = static_cast<int>(seed % static_cast<std::uint64_t>(nranks));
          const Values values = is_reduction(collective) ? Values::pattern : Values::bits;
          cases.push_back({collective, type, ReduceOp::sum, count, root, protocol, {values, seed}});
          ++seed;
        }
      }
    }
  }
  return run_cases(kind, nranks, cases);
}

std::string run_parts_operators(Kind kind, int nranks) {
  std::vector<PartsCase> cases;
  std::uint64_t seed = 1;
  for (const Collective collective : {Collective::reduce_scatter, Collective::reduce}) {
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        for (const auto& protocol : protocols_of(collective, type)) {
          const int root = static_cast<int>(seed % static_cast<std::uint64_t>(nranks));
          const Values values = seed % 2 == 0 ? Values::special : Values::bits;
          cases.push_back({collective, type, op, 40 + seed % 5, root, protocol, {values, seed}});
          ++seed;
        }
      }
    }
  }
  return run_cases(kind, nranks, cases);
}

std::string run_parts_tails(Kind kind, int nranks) {
  std::vector<PartsCase> cases;
  std::uint64_t seed = 1;
  for (const Collective collective : kByParts) {
    for (const DataType type : {DataType::u8, DataType::bf16}) {
      for (std::uint64_t count = 1; count <= 40; ++count) {
        for (const auto& protocol : protocols_of(collective, type)) {
          cases.push_back(
              {collective, type, ReduceOp::max, count, nranks - 1, protocol, {Values::bits, seed}});
          ++seed;
        }
      }
    }
  }
  return run_cases(kind, nranks, cases);
}

std::string run_parts_mixed(Kind kind, int nranks, int calls, std::uint64_t seed) {
  return run_communicators(
      kind, nranks, small_scratch(), [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
        PartsCaller caller(comm, kMostBytes);
        Caller all_reduces(comm, kMostBytes);
        std::mt19937_64 random(seed);  // the same on all ranks
        for (int i = 0; i < calls && problems.none(); ++i) {
          const std::uint64_t what = random() % 8, count = random() % 300;
          const DataType type = kDataTypes[random() % std::size(kDataTypes)];
          const std::uint64_t call_seed = random();
          if (what < std::size(kByParts)) {
            const auto protocols = protocols_of(kByParts[what], type);
            const PartsCase one{kByParts[what],
                                type,
                                ReduceOp::sum,
                                count,
                                static_cast<int>(random() % static_cast<std::uint64_t>(nranks)),
                                protocols[random() % protocols.size()],
                                {Values::pattern, call_seed}};
            caller.run(one, place_of(comm.rank(), call_seed % 1000), problems);
          } else if (what < 7) {
            const Call call{type, ReduceOp::sum, count, std::nullopt, {Values::pattern, call_seed}};
            all_reduces.run(call, {}, problems);
          } else if (const Status met = comm.barrier(nullptr); !met.ok()) {
            problems.add("barrier: %s", met.to_string().c_str());
          }
        }
        if (!problems.none()) problems.add("seed %llu", static_cast<unsigned long long>(seed));
      });
}

}  // namespace nearlight::test
