#include "tests/property/random_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

namespace nearlight::test {

namespace {

using rc::gen::element;
using rc::gen::inRange;

// Keeps a call at this many rounds, so that one with tiny chunks does not take a second.
constexpr std::uint64_t kMostRounds = 1500 / kSlowDown;

rc::Gen<std::uint64_t> any_count() {
  return rc::gen::weightedOneOf<std::uint64_t>({
      {3, inRange<std::uint64_t>(0, 70)},
      {3, element<std::uint64_t>(0, 1, 2, 3, 7, 17, 31, 33, 127, 1021, 4099, 65537)},
      {2, inRange<std::uint64_t>(70, 20'000)},
  });
}

rc::Gen<Place> any_place() {
  return rc::gen::build<Place>(rc::gen::set(&Place::send, inRange<std::uint32_t>(0, kMaxPlace + 1)),
                               rc::gen::set(&Place::recv, inRange<std::uint32_t>(0, kMaxPlace + 1)),
                               rc::gen::set(&Place::in_place, rc::gen::arbitrary<bool>()));
}

rc::Gen<PlannedCall> any_call(int nranks, std::uint64_t round_bytes) {
  return rc::gen::exec([nranks, round_bytes] {
    PlannedCall planned;
    planned.times = *inRange(1, 4);
    Call& call = planned.call;
    call.type = *rc::gen::elementOf(std::vector<DataType>(std::begin(kDataTypes), std::end(kDataTypes)));
    call.op = *rc::gen::elementOf(std::vector<ReduceOp>(std::begin(kReduceOps), std::end(kReduceOps)));
    call.count = std::min(*any_count(), kMostRounds * round_bytes / size_of(call.type));
    call.protocol =
        *element<std::optional<route::Protocol>>(std::nullopt, route::Protocol::ll, route::Protocol::simple,
                                                 route::Protocol::sentinel, route::Protocol::ll128);
    if (call.protocol && !algorithm::carries(*call.protocol, call.type)) call.protocol = std::nullopt;
    const auto two_shot = call.protocol == route::Protocol::ll128 ? route::Algorithm::two_shot_atomic
                                                                  : route::Algorithm::two_shot;
    if (*element(0, 0, 1) == 1 && algorithm::reduces(two_shot, call.type, call.op) &&
        algorithm::go_together(two_shot, call.protocol.value_or(route::Protocol::ll)))
      call.algorithm = two_shot;
    call.source.values = *element(Values::pattern, Values::numbers, Values::bits, Values::special);
    if (call.algorithm == route::Algorithm::two_shot_atomic) call.source.values = Values::pattern;
    call.source.seed = *inRange<std::uint64_t>(0, 1'000'000);
    planned.place = *rc::gen::container<std::vector<Place>>(static_cast<std::size_t>(nranks), any_place());
    return planned;
  });
}

rc::Gen<Plan> any_plan() {
  return rc::gen::exec([] {
    Plan plan;
    plan.nranks = *inRange(1, 9);
    plan.slots = *element<std::uint32_t>(32, 64, 96);
    plan.chunk_bytes = *element<std::uint32_t>(16, 48, 256, 1024, 64 * 1024);
    plan.packets = *element<std::uint32_t>(1, 3, 16, 64, 1000);
    plan.lines = *element<std::uint32_t>(4, 8, 64);
    const std::uint64_t round_bytes =
        std::min({plan.slots * 8, plan.chunk_bytes, plan.packets * 16, plan.lines * 120});
    const auto calls = *inRange<std::size_t>(1, 6);
    plan.calls = *rc::gen::container<std::vector<PlannedCall>>(calls, any_call(plan.nranks, round_bytes));
    return plan;
  });
}

}  // namespace

void check_random_plans(Kind kind) {
  rc::detail::TestMetadata metadata;
  metadata.id = std::string("AllReduce, ") + name_of(kind);
  metadata.description = metadata.id;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (std::getenv("RC_PARAMS") == nullptr) params.maxSuccess = kSlowDown == 1 ? 150 : 30;
  const auto result = rc::detail::checkTestable(
      [kind] {
        const Plan plan = *any_plan();
        const std::string problems = run_plan(kind, plan);
        if (!problems.empty()) {
          std::ostringstream text;
          text << plan << problems;
          RC_FAIL(text.str());
        }
      },
      metadata, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << text.str();
}

}  // namespace nearlight::test
