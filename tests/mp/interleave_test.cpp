// Fixed lists of calls, as graphs hold them, in turns with single calls, in an order that nobody can foresee
// but that is the same on all ranks.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/mp/sequences.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using Interleave = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Interleave, testing::ValuesIn(kinds()), kind_name);

constexpr std::size_t kMostBytes = 64 * 1024;

Call call_of(DataType type, std::uint64_t bytes, std::uint64_t seed, const Way* way = nullptr) {
  Call call;
  call.type = type;
  call.count = bytes / size_of(type);
  call.source = {Values::pattern, seed};
  if (way != nullptr) {
    call.algorithm = way->algorithm;
    call.protocol = way->protocol;
  }
  return call;
}

TEST_P(Interleave, ListsAndSingleCallsInTurns) {
  const int steps = 1'500 / kSlowDown;
  // What two graphs would hold: small ones by the route, and every way from small to several rounds.
  std::vector<Call> first, second;
  for (std::uint64_t i = 0; i < 5; ++i) first.push_back(call_of(DataType::bf16, 16 << i, i));
  for (std::uint64_t i = 0; i < std::size(kWays); ++i) {
    second.push_back(call_of(DataType::f32, 64, 10 + i, &kWays[i]));
    second.push_back(call_of(DataType::f32, 8 * 1024, 20 + i, &kWays[i]));
  }
  runtime::Options options = patient();
  options.slots = 64;
  options.chunk_bytes = 4096;
  options.packets = 64;
  options.lines = 4;
  options.deterministic = false;
  for (const int nranks : {2, 3}) {
    const auto problems = run_communicators(
        GetParam(), nranks, options, [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
          Caller caller(comm, kMostBytes);
          std::mt19937 random(7);
          std::uint64_t calls = 0;
          const auto run = [&](const Call& call) {
            ++calls;
            caller.run(call, {.in_place = calls % 3 == 0}, trouble);
          };
          for (int step = 0; step < steps && trouble.none(); ++step) {
            switch (random() % 4) {
              case 0:
                for (std::uint32_t times = 1 + random() % 3; times > 0; --times) {
                  for (const Call& call : first) run(call);
                }
                break;
              case 1:
                run(call_of(DataType::f16, 8 + random() % 64 * 8, random()));
                break;
              case 2:
                for (const Call& call : second) run(call);
                break;
              default:
                run(call_of(DataType::f32, kMostBytes / 2 + random() % (kMostBytes / 2), random()));
            }
          }
          // Every rank has gone through the same epochs, and through some.
          const auto own = comm.epochs();
          if (!own.ok()) return trouble.add("%s", own.status().to_string().c_str());
          const auto all = gather_values(exchange, own->at(0), Deadline::after(options.create_timeout));
          if (!all.ok()) return trouble.add("%s", all.status().to_string().c_str());
          for (const std::uint32_t epoch : *all) {
            if (epoch != own->at(0)) trouble.add("epoch %u here, %u on another rank", own->at(0), epoch);
          }
          if (own->at(0) < calls) trouble.add("epoch %u after %d calls", own->at(0), static_cast<int>(calls));
        });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

}  // namespace
}  // namespace nearlight::test
