// The variables that steer routes, on CPU ranks.
#include "runtime/steering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Set for the life of this object.
class Set {
 public:
  Set(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Set(const Set&) = delete;
  ~Set() { ::unsetenv(name_); }

 private:
  const char* name_;
};

constexpr const char *kForce = "NEARLIGHT_FORCE_PATH", *kDebug = "NEARLIGHT_DEBUG";

TEST(Steering, ForcePathTakesTheProtocolsNames) {
  EXPECT_EQ(read_steering()->forced, std::nullopt);
  for (const route::Protocol protocol : algorithm::kProtocols) {
    const Set set(kForce, algorithm::name_of(protocol));
    EXPECT_EQ(read_steering()->forced, protocol);
  }
  for (const char* value : {"LL", "ll,simple", "fast", " ll"}) {
    const Set set(kForce, value);
    const auto steering = read_steering();
    ASSERT_FALSE(steering.ok()) << value;
    EXPECT_EQ(steering.status().code(), Code::invalid_argument);
    EXPECT_EQ(steering.status().text(),
              std::string("NEARLIGHT_FORCE_PATH is \"") + value + "\"; it takes one of ll, simple, sentinel");
  }
}

TEST(Steering, DebugTakesRoute) {
  EXPECT_FALSE(read_steering()->log);
  {
    const Set set(kDebug, "route");
    EXPECT_TRUE(read_steering()->log);
  }
  const Set set(kDebug, "all");
  EXPECT_EQ(read_steering().status().text(), "NEARLIGHT_DEBUG is \"all\"; it takes route");
}

Status sum_of_ones(Communicator& comm, std::size_t count, Problems& trouble, const CallOptions& how = {}) {
  std::vector<float> data(count, 1);
  const Status status =
      comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr, how);
  const auto right = static_cast<float>(comm.nranks());
  if (status.ok() && std::count(data.begin(), data.end(), right) != static_cast<std::ptrdiff_t>(count))
    trouble.add("wrong sums of %zu elements", count);
  return status;
}

TEST(Steering, AForcedProtocolCarriesAllThatItCan) {
  for (const route::Protocol protocol : algorithm::kProtocols) {
    const Set set(kForce, algorithm::name_of(protocol));
    const auto body = [protocol](Communicator& comm, Exchange&, Problems& trouble) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20'000}}) {
        const auto route = comm.explain_all_reduce(count, DataType::f32, ReduceOp::sum);
        if (route.protocol != protocol) trouble.add("%s", algorithm::name_of(route.protocol));
        if (std::string_view(route.reason).find(kForce) == std::string_view::npos)
          trouble.add("reason: %s", route.reason);
        if (const Status status = sum_of_ones(comm, count, trouble); !status.ok())
          trouble.add("%s", status.to_string().c_str());
        // No integer can stand for "nothing has arrived".
        const auto integers = comm.explain_all_reduce(count, DataType::i32, ReduceOp::sum);
        const bool forced = std::string_view(integers.reason).find(kForce) != std::string_view::npos;
        if (forced != (protocol != route::Protocol::sentinel)) trouble.add("int32: %s", integers.reason);
        if (integers.protocol == route::Protocol::sentinel) trouble.add("int32 by sentinel");
      }
    };
    EXPECT_EQ(test::run_communicators(Kind::threads, 3, test::patient(), body), "");
  }
}

TEST(Steering, RanksWithDifferentForcedProtocolsAreToldSo) {
  const auto body = [](Exchange& exchange, Problems& trouble) {
    if (exchange.rank() == 1) ::setenv(kForce, "sentinel", 1);
    const auto comm = create_host(exchange, test::patient());
    if (comm.ok()) return trouble.add("created");
    test::expect_failure(trouble, "creation", comm.status(), Code::invalid_usage,
                         {kForce, "not set on rank 0", "sentinel on rank 1"});
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

TEST(Steering, AnUnknownProtocolOnOneRankFailsAll) {
  const auto body = [](Exchange& exchange, Problems& trouble) {
    if (exchange.rank() == 1) ::setenv(kForce, "fast", 1);
    const auto comm = create_host(exchange, test::patient());
    if (comm.ok()) return trouble.add("created");
    test::expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                         {kForce, "fast", "ll, simple, sentinel"});
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 2, body), "");
}

std::string said_by(const std::function<void(Communicator&, Problems&)>& calls) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, test::patient(),
                [&](Communicator& comm, Exchange&, Problems& trouble) { calls(comm, trouble); }),
            "");
  return testing::internal::GetCapturedStderr();
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Steering, DebugSaysARouteOnceForEachKindOfCall) {
  const auto calls = [](Communicator& comm, Problems& trouble) {
    for (int i = 0; i < 3; ++i) {
      for (const std::size_t count : {std::size_t{2}, std::size_t{3}, std::size_t{4000}}) {
        if (const Status status = sum_of_ones(comm, count, trouble); !status.ok())
          trouble.add("%s", status.to_string().c_str());
      }
    }
    CallOptions how;
    how.protocol = route::Protocol::sentinel;
    if (const Status status = sum_of_ones(comm, 4000, trouble, how); !status.ok())
      trouble.add("%s", status.to_string().c_str());
  };
  EXPECT_EQ(said_by(calls), "");
  const Set set(kDebug, "route");
  const std::string said = said_by(calls);
  // 8 and 12 bytes are one power of two.
  EXPECT_EQ(lines_of(said), 3u) << said;
  EXPECT_THAT(said, HasSubstr("nearlight: route: all_reduce of 2 float, sum (8 bytes), 2 ranks: one_shot ll, "
                              "1 x 1: CPU, small"));
  EXPECT_THAT(said, AllOf(HasSubstr("of 4000 float, sum (16000 bytes), 2 ranks: one_shot simple"),
                          HasSubstr("sentinel, 1 x 1: the caller asked"), Not(HasSubstr("of 3 float"))));
}

}  // namespace
}  // namespace nearlight::runtime
