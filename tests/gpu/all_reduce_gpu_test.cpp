// Every type, operator, count, protocol, place and alignment, to the bit, with guards around everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using route::Protocol;

enum class InPlace { none, all, by_rank };

struct Offsets {
  std::uint32_t send, recv;  // elements
};

// Equal on all ranks; what is one rank's own follows from case number and rank.
struct Case {
  Pattern pattern;
  std::uint64_t count = 0;
  InPlace in_place = InPlace::none;
  bool aligned = true;
  std::optional<Offsets> offsets;  // the same on every rank; without them each rank has its own
  runtime::CallOptions options;
};

struct Own {
  bool in_place;
  std::size_t send_offset, recv_offset;
};

Own own_part(const Case& one, std::uint32_t id, int rank) {
  const auto offset = [&](std::uint32_t salt) -> std::size_t {
    if (one.aligned) return 0;
    const std::uint32_t element = element_bytes(one.pattern.type);
    if (one.offsets) return (salt == 1 ? one.offsets->send : one.offsets->recv) * element;
    // Multiples of the element's size below 16, and so every alignment.
    return mixed(salt, static_cast<std::uint32_t>(rank), id) % (16 / element) * element;
  };
  const bool in_place =
      one.in_place == InPlace::all ||
      (one.in_place == InPlace::by_rank && mixed(3, static_cast<std::uint32_t>(rank), id) % 2 == 0);
  return {in_place, offset(1), offset(2)};
}

std::string describe(const Case& one, std::uint32_t id, int nranks) {
  std::ostringstream text;
  text << name_of(one.pattern.type) << ' ' << name_of(one.pattern.op) << ", " << one.count << " elements, "
       << (one.options.algorithm ? algorithm::name_of(*one.options.algorithm) : "any algorithm") << ' '
       << (one.options.protocol ? algorithm::name_of(*one.options.protocol) : "by route");
  if (one.options.grid != 0) text << ", grid " << one.options.grid;
  if (one.options.threads != 0) text << ", threads " << one.options.threads;
  text << "; offsets and place by rank:";
  for (int rank = 0; rank < nranks; ++rank) {
    const Own own = own_part(one, id, rank);
    text << ' ' << own.send_offset << '/' << (own.in_place ? "in" : std::to_string(own.recv_offset));
  }
  return text.str();
}

// Under a sanitizer: every n-th case only.
std::vector<Case> thinned(std::vector<Case> all) {
  if (test_scale() >= 1.0) return all;
  std::vector<Case> some;
  const auto wanted = static_cast<std::size_t>(std::max(1, scaled(static_cast<int>(all.size()))));
  for (std::size_t i = 0; i < wanted; ++i) some.push_back(all[i * all.size() / wanted]);
  return some;
}

void run_cases(Group& group, const std::vector<Case>& cases) {
  group.run([&](Rank& rank) {
    std::uint32_t id = 0;
    for (const Case& one : cases) {
      const Own own = own_part(one, id, rank.rank);
      const Work work = rank.work(one.pattern, one.count, own.in_place, own.send_offset, own.recv_offset, id);
      ASSERT_OK(rank.prepare_reduce_check(work, one.options));
      group.keep_pace(id);
      ++id;
    }
  });
  group.expect_clean(cases.size(), [&](std::uint32_t id) {
    return id < cases.size() ? describe(cases[id], id, group.nranks()) : std::string("no such case");
  });
}

constexpr std::uint64_t kCounts[] = {0,        1,
                                     2,        3,
                                     7,        17,
                                     31,       33,
                                     127,      255,
                                     1021,     1023,
                                     4096,     4099,
                                     4484,     65537,
                                     1u << 19, (3u << 18) + 128,
                                     1u << 20, (1u << 20) + 3,
                                     1u << 21};
constexpr std::uint64_t kTypeCounts[] = {0, 1, 2, 3, 7, 31, 33, 255, 1023, 4099, 65537, (1u << 20) + 3};
constexpr std::size_t kBufferBytes = 8 * ((1u << 20) + 3) + 2 * kGuardBytes + 64;
// Each that can be asked for, and none asked for.
std::vector<std::optional<Protocol>> choices_of(const Group& group) {
  std::vector<std::optional<Protocol>> all(group.protocols().begin(), group.protocols().end());
  all.push_back(std::nullopt);
  return all;
}
bool carried(const std::optional<Protocol>& protocol, DataType type) {
  return !protocol || algorithm::carries(*protocol, type);
}

class AllReduceGpu : public testing::TestWithParam<Setup> {};

TEST_P(AllReduceGpu, EveryTypeOperatorCountProtocolPlaceAndAlignment) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  std::vector<Case> cases;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!algorithm::has_own_code(type, op)) continue;  // the others share theirs: see below
      for (const std::uint64_t count : kCounts) {
        for (const auto& protocol : choices) {
          if (!carried(protocol, type)) continue;
          for (const bool aligned : {true, false}) {
            for (const InPlace in_place : {InPlace::none, InPlace::all, InPlace::by_rank}) {
              if (aligned && in_place == InPlace::by_rank) continue;
              Case one;
              one.pattern = {type, op, Values::general, cases.size()};
              one.count = count;
              one.in_place = in_place;
              one.aligned = aligned;
              one.options.protocol = protocol;
              cases.push_back(one);
              if (!protocol || !algorithm::go_together(Algorithm::two_shot, *protocol)) continue;
              one.options.algorithm = Algorithm::two_shot;
              one.pattern.seed = cases.size();
              cases.push_back(one);
            }
          }
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

// Those that take their operator at run time: protocol, place and alignment in turns, the largest count for
// one in seven of them, other ones on other numbers of ranks.
TEST_P(AllReduceGpu, AllTypesAndOperators) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  std::vector<Case> cases;
  std::uint32_t number = static_cast<std::uint32_t>(group.nranks());
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      ++number;
      for (const std::uint64_t count : kTypeCounts) {
        if (count > 1'000'000 && number % 7 != 0) continue;
        const std::uint32_t turn = mixed(number, 5, count);
        Case one;
        one.pattern = {type, op, turn % 4 == 0 ? Values::special : Values::general, cases.size()};
        one.count = count;
        one.in_place = turn / 4 % 3 == 0   ? InPlace::none
                       : turn / 4 % 3 == 1 ? InPlace::all
                                           : InPlace::by_rank;
        one.aligned = turn / 16 % 3 == 0;
        one.options.protocol = choices[turn / 64 % std::size(choices)];
        if (!carried(one.options.protocol, type)) one.options.protocol = Protocol::ll;
        if (turn % 2 == 1 && one.options.protocol &&
            algorithm::go_together(Algorithm::two_shot, *one.options.protocol)) {
          one.options.algorithm = Algorithm::two_shot;
        }
        cases.push_back(one);
      }
    }
  }
  run_cases(group, thinned(cases));
}

// Each type with each operator, count, offset and place, by the route and by one of the protocols in turn.
class AllReduceProductGpu : public testing::TestWithParam<Setup> {};

TEST_P(AllReduceProductGpu, TypesOperatorsCountsOffsetsAndPlaces) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  const struct {
    std::optional<Offsets> offsets;
    InPlace in_place;
  } places[] = {
      {Offsets{0, 0}, InPlace::none}, {Offsets{1, 1}, InPlace::none}, {Offsets{3, 0}, InPlace::none},
      {Offsets{0, 1}, InPlace::none}, {std::nullopt, InPlace::none},  {Offsets{0, 0}, InPlace::all},
      {Offsets{1, 0}, InPlace::all},  {std::nullopt, InPlace::all},   {std::nullopt, InPlace::by_rank}};
  std::vector<Case> cases;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (const std::uint64_t count : kTypeCounts) {
        for (const auto& place : places) {
          const std::uint32_t turn = mixed(cases.size(), 5, count);
          Case one;
          one.pattern = {type, op, turn % 4 == 0 ? Values::special : Values::general, cases.size()};
          one.count = count;
          one.in_place = place.in_place;
          one.aligned = false;
          one.offsets = place.offsets;
          cases.push_back(one);
          one.options.protocol = group.protocols()[turn / 4 % std::size(group.protocols())];
          if (turn % 2 == 1 && algorithm::go_together(Algorithm::two_shot, *one.options.protocol))
            one.options.algorithm = Algorithm::two_shot;
          if (algorithm::carries(*one.options.protocol, type)) cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

TEST_P(AllReduceGpu, EveryGridAndBlockSize) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  // A very large message takes all regions.
  const std::uint32_t regions =
      group[0].comm->explain_all_reduce(std::size_t{1} << 40, DataType::f32, ReduceOp::sum).grid;
  std::vector<Case> cases;
  for (const Protocol protocol : group.protocols()) {
    for (const std::uint32_t grid : {1u, 2u, 3u, regions}) {
      for (const std::uint32_t threads : {32u, 96u, 256u, 512u}) {
        for (const std::uint64_t count : {5u, 1000u, 30011u}) {
          Case one;
          one.pattern = {cases.size() % 2 == 0 ? DataType::bf16 : DataType::f32, ReduceOp::sum,
                         Values::general, cases.size()};
          one.count = count;
          one.aligned = cases.size() % 3 != 0;
          one.options.protocol = protocol;
          one.options.grid = std::min(grid, regions);
          one.options.threads = threads;
          cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

// The ranks' own addresses must not change how a message is cut: every second one's allow whole vectors, the
// others' do not, at sizes where the last CTA is not full.
TEST_P(AllReduceGpu, RanksOfDifferentAlignment) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  std::uint64_t calls = 0;
  for (const std::optional<Protocol>& protocol : choices) {
    for (const std::uint64_t count :
         {4484u, 4608u, 8196u, 12292u, 20480u, 65540u, (3u << 18) + 128, 1u << 20}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        if (protocol && !algorithm::go_together(algorithm, *protocol)) continue;
        ++calls;
        group.run([&](Rank& rank) {
          const std::size_t offset = rank.rank % 2 == 0 ? 0 : 4;
          runtime::CallOptions options;
          options.algorithm = algorithm;
          options.protocol = protocol;
          ASSERT_OK(rank.prepare_reduce_check(
              rank.work({DataType::f32, ReduceOp::sum, Values::general, count}, count, false, offset, offset),
              options));
        });
      }
    }
  }
  group.expect_clean(calls);
}

// Inputs of the sentinel's own bits, in whole vectors (one, two and four packets a thread) and not: one NaN
// comes out, everywhere.
TEST_P(AllReduceGpu, TheSentinelsBitsAsInput) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  for (const DataType type :
       {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    for (const std::uint64_t bytes : {std::uint64_t{16}, std::uint64_t{65536}, std::uint64_t{65544},
                                      std::uint64_t{1} << 20, std::uint64_t{2} << 20}) {
      if (bytes > 100'000 && type != DataType::bf16) continue;
      for (const std::size_t offset : {std::size_t{0}, std::size_t{8}}) {
        group.run([&](Rank& rank) {
          const std::uint64_t count = bytes / element_bytes(type);
          const Work work =
              rank.work({type, ReduceOp::sum, Values::general, 0}, count, false, offset, offset);
          runtime::CallOptions options;
          options.protocol = Protocol::sentinel;
          ASSERT_CUDA(cudaMemsetAsync(const_cast<void*>(work.send), 0xff, bytes, rank.stream));
          ASSERT_CUDA(cudaMemsetAsync(work.recv, 0, bytes, rank.stream));
          ASSERT_OK(rank.all_reduce(work, options));
          std::vector<unsigned char> result(bytes);
          ASSERT_CUDA(cudaMemcpyAsync(result.data(), work.recv, bytes, cudaMemcpyDeviceToHost, rank.stream));
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          const std::size_t element = element_bytes(type);
          for (std::size_t i = 0; i < bytes; ++i) {
            // All ones but for the sign, the top bit of an element's last byte.
            ASSERT_EQ(result[i], i % element == element - 1 ? 0x7f : 0xff)
                << name_of(type) << ", byte " << i << " of " << bytes;
          }
        });
      }
    }
  }
  group.expect_clean(0);
}

// A large value (bf16: 7.5e4) and +-1 must not vanish; the expected value is the exact sum, rounded once.
TEST_P(AllReduceGpu, OutliersKeepTheSmallValues) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  std::vector<Case> cases;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (const auto& protocol : choices) {
        if (!carried(protocol, type)) continue;
        for (const std::uint64_t count : {333u, 20011u}) {
          Case one;
          one.pattern = {type, op, Values::outliers, cases.size()};
          one.count = count;
          one.aligned = cases.size() % 2 == 0;
          one.options.protocol = protocol;
          cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, cases);
}

// NaN, infinities, -0, denormals: right on every rank, and the same bits on all of them.
TEST_P(AllReduceGpu, SpecialValuesAndTheSameBitsOnAllRanks) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  for (const DataType type : kDataTypes) {
    if (is_integer(type)) continue;
    for (const ReduceOp op : kReduceOps) {
      for (const Protocol protocol : group.protocols()) {
        if (test_scale() < 1.0 && (static_cast<int>(type) + static_cast<int>(op)) % 5 != 0) continue;
        constexpr std::uint64_t kCount = 4099;
        Case one;
        one.pattern = {type, op, Values::special, 77};
        one.count = kCount;
        one.in_place = InPlace::by_rank;
        one.aligned = false;
        one.options.protocol = protocol;
        // Both algorithms, the second by every other pair: it reduces with the same code.
        if ((static_cast<int>(type) + static_cast<int>(op)) % 2 == 0 &&
            algorithm::go_together(Algorithm::two_shot, protocol)) {
          one.options.algorithm = Algorithm::two_shot;
        }
        run_cases(group, {one});
        std::vector<std::vector<char>> results;
        for (Rank& rank : group.ranks()) {
          const Own own = own_part(one, 0, rank.rank);
          const Work work = rank.work(one.pattern, kCount, own.in_place, own.send_offset, own.recv_offset);
          std::vector<char>& bits = results.emplace_back(kCount * element_bytes(type));
          ASSERT_CUDA(cudaSetDevice(rank.device));
          ASSERT_CUDA(cudaMemcpy(bits.data(), work.recv, bits.size(), cudaMemcpyDeviceToHost));
          EXPECT_EQ(bits, results[0])
              << "ranks 0 and " << rank.rank << " differ: " << describe(one, 0, group.nranks());
        }
      }
    }
  }
}

// The checks above run on the GPU: here the CPU looks at the same results.
TEST_P(AllReduceGpu, TheCpuFindsTheSameResults) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  constexpr std::uint64_t kCount = 1021;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const Pattern pattern{type, op, Values::general, 5};
      group.run([&](Rank& rank) {
        const Work work = rank.work(pattern, kCount, false);
        ASSERT_OK(rank.prepare_reduce_check(work));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        std::vector<std::uint8_t> bytes(kCount * element_bytes(type));
        ASSERT_CUDA(
            cudaMemcpyAsync(bytes.data(), work.recv, bytes.size(), cudaMemcpyDeviceToHost, rank.stream));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        int wrong = 0;
        for (std::uint64_t i = 0; i < kCount; ++i) {
          std::uint64_t got = 0;
          std::memcpy(&got, &bytes[i * element_bytes(type)], element_bytes(type));
          if (got != expected_bits(pattern, static_cast<std::uint32_t>(rank.nranks), i)) ++wrong;
        }
        EXPECT_EQ(wrong, 0) << name_of(type) << ' ' << name_of(op) << ", rank " << rank.rank;
      });
      group.expect_clean(1);
    }
  }
}

// A check that cannot fail proves nothing: one flipped bit, one touched guard byte, one changed input must
// each be found.
TEST(AllReduceGpuChecks, FindWhatIsWrong) {
  Group group({Memory::cuda_vmm, 1, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto choices = choices_of(group);
  const Pattern pattern{DataType::bf16, ReduceOp::sum, Values::general, 11};
  constexpr std::uint64_t kCount = 1000;
  const auto flip = [](Rank& rank, void* at) {
    std::uint8_t byte = 0;
    EXPECT_CUDA(cudaMemcpyAsync(&byte, at, 1, cudaMemcpyDeviceToHost, rank.stream));
    EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
    byte ^= 0x10;
    EXPECT_CUDA(cudaMemcpyAsync(at, &byte, 1, cudaMemcpyHostToDevice, rank.stream));
  };
  group.run([&](Rank& rank) {
    const Work work = rank.work(pattern, kCount, false, 2, 6);
    ASSERT_OK(rank.prepare_reduce_check(work));
    EXPECT_EQ(rank.wait_and_read().wrong, 0u);
    auto* const send = static_cast<char*>(work.send);
    auto* const recv = static_cast<char*>(work.recv);
    const struct {
      char* at;
      What what;
    } faults[] = {{recv + 2 * 999, What::output},
                  {recv - 1, What::guard},
                  {recv + 2 * kCount, What::guard},
                  {send + 2 * 500, What::input},
                  {send + 2 * kCount, What::guard}};
    for (const auto& fault : faults) {
      flip(rank, fault.at);
      ASSERT_CUDA(check(work, rank.report, rank.stream));
      const Report report = rank.wait_and_read();
      EXPECT_EQ(report.wrong, 1u);
      EXPECT_EQ(report.what, static_cast<std::uint32_t>(fault.what));
      flip(rank, fault.at);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OneGpu, AllReduceGpu, testing::ValuesIn(all_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, AllReduceGpu, testing::ValuesIn(all_on_two_gpus()), setup_name);
INSTANTIATE_TEST_SUITE_P(OneGpu, AllReduceProductGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, AllReduceProductGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
