// The variables that steer routes, on CPU ranks.
#include "runtime/steering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "route/table_file.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/table_file.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Set for the life of this object.
class Set {
 public:
  Set(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Set(const Set&) = delete;
  ~Set() { ::unsetenv(name_); }

 private:
  const char* name_;
};

const route::Target kCpu{false, "", 2};
constexpr const char *kForce = "NEARLIGHT_FORCE_PATH", *kDebug = "NEARLIGHT_DEBUG",
                     *kTable = "NEARLIGHT_ROUTE_TABLE";

TEST(Steering, ForcePathTakesTheProtocolsNames) {
  EXPECT_EQ(read_steering(kCpu)->forced.protocol, std::nullopt);
  for (const route::Protocol protocol : algorithm::kProtocols) {
    const Set set(kForce, algorithm::name_of(protocol));
    EXPECT_EQ(read_steering(kCpu)->forced.protocol, protocol);
    EXPECT_FALSE(read_steering(kCpu)->forced.algorithm);
  }
  {
    const Set set(kForce, "two_shot");
    EXPECT_EQ(read_steering(kCpu)->forced.algorithm, route::Algorithm::two_shot);
  }
  {
    const Set set(kForce, "two_shot_atomic");
    EXPECT_EQ(read_steering(kCpu)->forced.algorithm, route::Algorithm::two_shot_atomic);
    EXPECT_EQ(forced_in_words(number_of(read_steering(kCpu)->forced)), "two_shot_atomic");
  }
  {
    const Set set(kForce, "nccl");
    EXPECT_EQ(read_steering(kCpu)->forced.algorithm, route::Algorithm::nccl);
    EXPECT_TRUE(check_forced(read_steering(kCpu)->forced, true, "here").ok());
    EXPECT_EQ(check_forced(read_steering(kCpu)->forced, false, "here").code(), Code::invalid_argument);
  }
  {
    const Set set(kForce, "staged");
    EXPECT_EQ(read_steering(kCpu)->forced.algorithm, route::Algorithm::staged);
    EXPECT_TRUE(check_forced(read_steering(kCpu)->forced, false, "here").ok());
    EXPECT_EQ(check_forced(read_steering(kCpu)->forced, true, "here").code(), Code::invalid_argument);
    EXPECT_EQ(forced_in_words(number_of(read_steering(kCpu)->forced)), "staged");
  }
  {
    const Set set(kForce, "fallback");
    const route::Forced forced = read_steering(kCpu)->forced;
    EXPECT_TRUE(forced.fallback);
    EXPECT_FALSE(forced.algorithm || forced.protocol);
    EXPECT_TRUE(forced_of(number_of(forced)).fallback);
    EXPECT_EQ(forced_in_words(number_of(forced)), "fallback");
    for (const bool attached : {false, true}) EXPECT_TRUE(check_forced(forced, attached, "here").ok());
  }
  for (const char* value : {"LL", "ll,simple", "fast", " ll"}) {
    const Set set(kForce, value);
    const auto steering = read_steering(kCpu);
    ASSERT_FALSE(steering.ok()) << value;
    EXPECT_EQ(steering.status().code(), Code::invalid_argument);
    EXPECT_EQ(steering.status().text(), std::string("NEARLIGHT_FORCE_PATH is \"") + value +
                                            "\"; it takes one of ll, simple, sentinel, ll128, two_shot, "
                                            "two_shot_atomic, nccl, staged, fallback");
  }
}

TEST(Steering, DebugTakesRoute) {
  EXPECT_FALSE(read_steering(kCpu)->log);
  {
    const Set set(kDebug, "route");
    EXPECT_TRUE(read_steering(kCpu)->log);
  }
  const Set set(kDebug, "all");
  EXPECT_EQ(read_steering(kCpu).status().text(), "NEARLIGHT_DEBUG is \"all\"; it takes route");
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

// By the variable that forces it, and by one call.
TEST(Steering, WhatAddsInAnyOrderNeedsPermission) {
  constexpr const char* kDeterministic = "NEARLIGHT_DETERMINISTIC";
  const auto nothing = [](Communicator&, Exchange&, Problems&) {};
  const auto call = [](Communicator& comm, Exchange&, Problems& trouble) {
    CallOptions how;
    how.algorithm = route::Algorithm::two_shot_atomic;
    const Status status = sum_of_ones(comm, 5000, trouble, how);
    if (!status.ok()) trouble.add("%s", status.to_string().c_str());
    how.protocol = route::Protocol::ll;
    if (sum_of_ones(comm, 5000, trouble, how).text().find("ll128") == std::string::npos)
      trouble.add("it goes with ll");
  };
  const auto names_it = [](const std::string& text) {
    return text.find("deterministic") != std::string::npos &&
           text.find("NEARLIGHT_DETERMINISTIC") != std::string::npos;
  };
  {
    const Set set(kForce, "two_shot_atomic");
    const std::string refused = test::run_communicators(Kind::threads, 2, test::patient(), nothing);
    EXPECT_TRUE(names_it(refused)) << refused;
  }
  const std::string refused = test::run_communicators(Kind::threads, 2, test::patient(), call);
  EXPECT_TRUE(names_it(refused)) << refused;
  const Set allowed(kDeterministic, "0");
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, test::patient(), call), "");
  // The configuration stands above the variable.
  runtime::Options options = test::patient();
  options.deterministic = true;
  EXPECT_TRUE(names_it(test::run_communicators(Kind::threads, 2, options, call)));
  const Set set(kForce, "two_shot_atomic");
  const auto body = [](Communicator& comm, Exchange&, Problems& trouble) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20'000}}) {
      for (const DataType type : {DataType::f32, DataType::i32}) {
        const auto route = comm.explain_all_reduce(count, type, ReduceOp::sum);
        const bool atomic = count > 1 && type == DataType::f32;
        if ((route.algorithm == route::Algorithm::two_shot_atomic) != atomic)
          trouble.add("%zu %s: %s", count, name_of(type), route.reason);
      }
      if (const Status status = sum_of_ones(comm, count, trouble); !status.ok())
        trouble.add("%s", status.to_string().c_str());
    }
  };
  EXPECT_EQ(test::run_communicators(Kind::threads, 3, test::patient(), body), "");
}

TEST(Steering, TwoShotIsForcedWhereTheMessageCanBeCut) {
  const Set set(kForce, "two_shot");
  const auto body = [](Communicator& comm, Exchange&, Problems& trouble) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20'000}}) {
      const auto route = comm.explain_all_reduce(count, DataType::f32, ReduceOp::sum);
      if ((route.algorithm == route::Algorithm::two_shot) != (count > 1))
        trouble.add("%zu: %s", count, route.reason);
      if (const Status status = sum_of_ones(comm, count, trouble); !status.ok())
        trouble.add("%s", status.to_string().c_str());
    }
  };
  EXPECT_EQ(test::run_communicators(Kind::threads, 3, test::patient(), body), "");
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

// No NCCL is attached to CPU ranks.
TEST(Steering, NcclIsForcedOnlyWhereOneIsAttached) {
  const Set set(kForce, "nccl");
  const auto body = [](Exchange& exchange, Problems& trouble) {
    const auto comm = create_host(exchange, test::patient());
    if (comm.ok()) return trouble.add("created");
    test::expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                         {kForce, "nccl", "attached"});
  };
  EXPECT_EQ(test::run_ranks(Kind::threads, 2, body), "");
  EXPECT_EQ(forced_in_words(number_of(route::Forced{route::Algorithm::nccl, {}})), "nccl");
}

TEST(Steering, NcclAskedForByACallIsRefusedWithItsName) {
  const auto body = [](Communicator& comm, Exchange&, Problems& trouble) {
    CallOptions how;
    how.algorithm = route::Algorithm::nccl;
    test::expect_failure(trouble, "call", sum_of_ones(comm, 100, trouble, how), Code::invalid_argument,
                         {"algorithm: nccl", "attached"});
    how.protocol = route::Protocol::ll;
    test::expect_failure(trouble, "call", sum_of_ones(comm, 100, trouble, how), Code::invalid_argument,
                         {"protocol: ll", "nccl"});
    if (const Status status = sum_of_ones(comm, 100, trouble); !status.ok())
      trouble.add("afterwards: %s", status.to_string().c_str());
  };
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, test::patient(), body), "");
}

TEST(Steering, EarlyLaunchIsSaidByTheConfigurationElseByTheVariable) {
  constexpr const char* kEarlyLaunch = "NEARLIGHT_EARLY_LAUNCH";
  EXPECT_EQ(effective_early_launch({}).value(), std::nullopt);
  {
    const Set set(kEarlyLaunch, "0");
    EXPECT_EQ(effective_early_launch({}).value(), false);
    runtime::Options options;
    options.early_launch = true;
    EXPECT_EQ(effective_early_launch(options).value(), true);
  }
  const Set set(kEarlyLaunch, "2");
  const auto refused = effective_early_launch({});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().text(), HasSubstr(kEarlyLaunch));
}

TEST(Steering, RanksWithDifferentEarlyLaunchAreToldSo) {
  const auto body = [](Exchange& exchange, Problems& trouble) {
    runtime::Options options = test::patient();
    if (exchange.rank() == 1) options.early_launch = false;
    const auto comm = create_host(exchange, options);
    if (comm.ok()) return trouble.add("created");
    test::expect_failure(trouble, "creation", comm.status(), Code::invalid_usage,
                         {"early_launch", "unset on rank 0", "off on rank 1"});
  };
  EXPECT_EQ(test::run_ranks(Kind::threads, 2, body), "");
}

constexpr const char* kMaxCtas = "NEARLIGHT_MAX_CTAS";

TEST(Steering, MaxCtasIsANumberAndNoMoreThanTheRegions) {
  EXPECT_EQ(*effective_max_ctas({}), 0u);
  Options options;
  {
    const Set set(kMaxCtas, "16");
    EXPECT_EQ(*effective_max_ctas({}), 16u);
    options.max_ctas = 8;
    EXPECT_EQ(*effective_max_ctas(options), 8u);
    options = {};
    options.regions = 15;
    EXPECT_EQ(effective_max_ctas(options).status().text(),
              "NEARLIGHT_MAX_CTAS: 16 is more than the 15 regions");
  }
  for (const char* value : {"-1", "1025", "many", ""}) {
    const Set set(kMaxCtas, value);
    EXPECT_EQ(effective_max_ctas({}).status().code(), Code::invalid_argument) << value;
    EXPECT_THAT(effective_max_ctas({}).status().text(), HasSubstr(kMaxCtas));
  }
  options = {};
  options.regions = 16;
  options.max_ctas = 17;
  EXPECT_EQ(effective_max_ctas(options).status().text(), "max_ctas: 17 is more than the 16 regions");
  options.max_ctas = 16;
  EXPECT_EQ(*effective_max_ctas(options), 16u);
  options.max_ctas = 1025;
  options.regions = 0;
  EXPECT_THAT(check_options(options).text(), HasSubstr("max_ctas: 1025"));
}

TEST(Steering, RanksWithDifferentMaxCtasAreToldSo) {
  for (const bool by_variable : {false, true}) {
    const auto body = [by_variable](Exchange& exchange, Problems& trouble) {
      Options options = test::patient();
      if (exchange.rank() == 1 && by_variable) ::setenv(kMaxCtas, "8", 1);
      if (exchange.rank() == 1 && !by_variable) options.max_ctas = 8;
      const auto comm = create_host(exchange, options);
      if (comm.ok()) return trouble.add("created");
      test::expect_failure(trouble, "creation", comm.status(), Code::invalid_usage,
                           {"max_ctas is 0 on rank 0, 8 on rank 1"});
    };
    EXPECT_EQ(test::run_ranks(Kind::processes, 2, body), "");
  }
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
  EXPECT_EQ(lines_of(said), 4u) << said;
  EXPECT_THAT(said, StartsWith("nearlight: route: 2 ranks, table shipped for CPU ranks\n"));
  EXPECT_THAT(said, HasSubstr("nearlight: route: all_reduce of 2 float, sum (8 bytes), 2 ranks: one_shot ll, "
                              "1 x 1: CPU, small"));
  EXPECT_THAT(said, AllOf(HasSubstr("of 4000 float, sum (16000 bytes), 2 ranks: one_shot simple"),
                          HasSubstr("sentinel, 1 x 1: the caller asked"), Not(HasSubstr("of 3 float"))));
}

using test::TableFile;

std::string host_table(int nranks, std::size_t ll_limit_bytes) {
  route::Table table = route::kCpuTable;
  table.ll_limit_bytes = ll_limit_bytes;
  return route::table_text(table, {false, "", nranks}, "a test");
}

TEST(RouteTableVariable, ItsLimitsCount) {
  const TableFile file(host_table(2, 4096));
  const Set set(kTable, file.path());
  for (const int nranks : {2, 3}) {
    const auto body = [nranks](Communicator& comm, Exchange&, Problems& trouble) {
      const auto route = comm.explain_all_reduce(1024, DataType::f32, ReduceOp::sum);
      const bool in_force = nranks == 2;  // it was made for two
      if ((route.protocol == route::Protocol::ll) != in_force) trouble.add("4096 bytes: %s", route.reason);
      if ((std::string_view(route.reason).find(kTable) != std::string_view::npos) != in_force)
        trouble.add("reason: %s", route.reason);
      if (comm.explain_all_reduce(1025, DataType::f32, ReduceOp::sum).protocol != route::Protocol::simple)
        trouble.add("4100 bytes are small");
      if (const Status status = sum_of_ones(comm, 1024, trouble); !status.ok())
        trouble.add("%s", status.to_string().c_str());
    };
    EXPECT_EQ(test::run_communicators(Kind::threads, nranks, test::patient(), body), "");
  }
}

TEST(RouteTableVariable, ABadFileFailsTheCreationWithVariableFileAndField) {
  struct Bad {
    std::string text;
    const char* why;
  };
  const Bad files[] = {
      {"{", "line 1: "},
      {R"({"schema": 9})", "schema: is 9"},
      {R"({"schema": 1, "backend": "cuda", "gpu": "NVIDIA H200", "nranks": 2})",
       "backend: the table was made"},
      {R"({"schema": 1, "backend": "host", "nranks": 2, "ll_limit_bytes": -1})", "ll_limit_bytes: is -1"}};
  for (const Bad& bad : files) {
    const TableFile file(bad.text);
    const auto body = [&](Exchange& exchange, Problems& trouble) {
      const auto comm = create_host(exchange, test::patient());
      if (comm.ok()) return trouble.add("created");
      test::expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                           {kTable, file.path(), bad.why});
    };
    const Set set(kTable, file.path());
    EXPECT_EQ(test::run_ranks(Kind::threads, 2, body), "") << bad.text;
  }
  const Set set(kTable, "/no/such/file");
  EXPECT_THAT(read_route_table(kCpu).status().text(), AllOf(HasSubstr(kTable), HasSubstr("/no/such/file")));
}

TEST(RouteTableVariable, RanksWithDifferentTablesAreToldSo) {
  const TableFile first(host_table(3, 64)), second(host_table(3, 128));
  for (const bool other_has_one : {false, true}) {
    const auto body = [&](Exchange& exchange, Problems& trouble) {
      if (exchange.rank() != 1) ::setenv(kTable, first.path().c_str(), 1);
      if (exchange.rank() == 1 && other_has_one) ::setenv(kTable, second.path().c_str(), 1);
      const auto comm = create_host(exchange, test::patient());
      if (comm.ok()) return trouble.add("created");
      test::expect_failure(
          trouble, "creation", comm.status(), Code::invalid_usage,
          {kTable, "a table of digest", "on rank 0", other_has_one ? "on rank 1" : "not in use on rank 1"});
    };
    EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
  }
}

TEST(RouteTableVariable, DebugSaysWhatIsInForce) {
  const auto nothing = [](Communicator&, Problems&) {};
  const Set debug(kDebug, "route");
  const TableFile fits(host_table(2, 64)), other(host_table(4, 64));
  {
    const Set set(kTable, fits.path());
    EXPECT_EQ(said_by(nothing), "nearlight: route: 2 ranks, table from NEARLIGHT_ROUTE_TABLE\n");
  }
  const Set set(kTable, other.path());
  EXPECT_EQ(said_by(nothing),
            "nearlight: route: 2 ranks, table shipped for CPU ranks; NEARLIGHT_ROUTE_TABLE is for another "
            "number of ranks\n");
}

}  // namespace
}  // namespace nearlight::runtime
