// Which memory a communicator on top of NCCL's gets, with CPU communicators in the place of both kinds.
#include "runtime/nccl_memory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;
using Created = NcclMemories::Created;

constexpr const char* kVariable = "NEARLIGHT_NCCL_MEMORY";

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

// What happened on one rank.
struct Asked {
  int windows = 0, vmm = 0;
  bool by_variable = false;
  std::string reason;
};

// What a rank finds.
struct Found {
  Status tested = {}, windows = {};  // an ok `windows` makes a communicator
  Status may_do_without = {}, vmm = {};
};

Created create(Exchange& ranks, const Found& found, Asked& asked, Deadline deadline = patience()) {
  // Not this rank's to destroy: whether it is let go of is seen by who holds it.
  const auto known = std::shared_ptr<Exchange>(&ranks, [](Exchange*) {});
  NcclMemories memories;
  memories.nccl = "NCCL 1.2.3";
  memories.windows_tested = found.tested;
  memories.may_do_without = found.may_do_without;
  memories.windows = [&](const std::shared_ptr<Exchange>& exchange, const std::string& reason) -> Created {
    ++asked.windows;
    asked.reason = reason;
    if (!found.windows.ok()) return found.windows;
    return create_host(*exchange);
  };
  memories.vmm = [&](std::unique_ptr<Exchange> met, const std::string& reason, bool by_variable) -> Created {
    ++asked.vmm;
    asked.by_variable = by_variable;
    asked.reason = reason;
    EXPECT_EQ(known.use_count(), 1) << "the first exchange is still held";
    NL_TRY(agree(*met, found.vmm, patience()));
    return create_host(std::move(met));
  };
  return create_on_nccl_memory(known, memories, deadline);
}

struct Case {
  const char* said;  // by the variable; null: it is not set
  Status tested, windows;
  int windows_asked, vmm_asked;
  Code code;
  std::string text;  // in the reason, or in the failure's text
};

std::vector<Case> cases() {
  const Status ok, old = failure(Code::unsupported, "too old"),
                   none = failure(Code::unsupported, "no window"), late = failure(Code::timeout, "too late");
  return {
      {nullptr, ok, ok, 1, 0, Code::ok, "NCCL 1.2.3 has windows"},
      {nullptr, old, ok, 0, 1, Code::ok, "too old"},
      {nullptr, ok, none, 1, 1, Code::ok, "no window"},
      {nullptr, ok, late, 1, 0, Code::timeout, "too late"},
      {"nccl_window", ok, ok, 1, 0, Code::ok, "NEARLIGHT_NCCL_MEMORY says so"},
      {"nccl_window", old, ok, 0, 0, Code::unsupported, "too old"},
      {"nccl_window", ok, none, 1, 0, Code::unsupported, "no window"},
      {"cuda_vmm", ok, ok, 0, 1, Code::ok, "NEARLIGHT_NCCL_MEMORY says so"},
      {"cuda_vmm", old, none, 0, 1, Code::ok, "NEARLIGHT_NCCL_MEMORY says so"},
      {"window", ok, ok, 0, 0, Code::invalid_argument, "NEARLIGHT_NCCL_MEMORY: 'window'"},
  };
}

class NcclMemoryOf : public testing::TestWithParam<Case> {};

TEST_P(NcclMemoryOf, RanksTakeTheSameAndSayWhy) {
  const Case& expected = GetParam();
  const auto body = [&](Exchange& known, Problems& problems) {
    if (expected.said != nullptr) ::setenv(kVariable, expected.said, 1);
    Asked asked;
    const Created made = create(known, {.tested = expected.tested, .windows = expected.windows}, asked);
    if (asked.windows != expected.windows_asked || asked.vmm != expected.vmm_asked)
      problems.add("asked for windows %d times, for the other memory %d times", asked.windows, asked.vmm);
    const std::string said = made.ok() ? asked.reason : made.status().text();
    if (made.status().code() != expected.code || said.find(expected.text) == std::string::npos)
      problems.add("%s; %s", made.status().to_string().c_str(), said.c_str());
    if (!made.ok()) return;
    if (asked.vmm != 0 && asked.by_variable != (expected.said != nullptr))
      problems.add("asked by the variable: %d", asked.by_variable);
    float value = static_cast<float>(known.rank() + 1);
    const Status summed = (*made)->all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
    if (!summed.ok() || value != 6) problems.add("the sum is %g: %s", value, summed.to_string().c_str());
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}
INSTANTIATE_TEST_SUITE_P(Every, NcclMemoryOf, testing::ValuesIn(cases()));

// One rank alone lacks them: nobody goes another way than the others.
TEST(NcclMemory, ARankWithAnotherNcclDecidesForAll) {
  const auto body = [](Exchange& known, Problems& problems) {
    Asked asked;
    Found found;
    if (known.rank() == 1) found.tested = failure(Code::unsupported, "too old");
    const Created made = create(known, found, asked);
    if (!made.ok() || asked.windows != 0 || asked.vmm != 1)
      problems.add("%s, windows %d", made.status().to_string().c_str(), asked.windows);
    if (asked.reason.find("too old") == std::string::npos) problems.add("reason: %s", asked.reason.c_str());
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

TEST(NcclMemory, AFailureOfOneRankIsNoLackOfWindows) {
  const auto body = [](Exchange& known, Problems& problems) {
    Asked asked;
    const Status windows = known.rank() == 2 ? failure(Code::cuda_error, "broken")
                                             : failure(Code::unsupported, "as rank 2 has none");
    const Created made = create(known, {.windows = windows}, asked);
    if (made.ok() || asked.vmm != 0) problems.add("went on by the other memory");
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

// Nor is one that has some where others have none, which cannot be: it must not leave them alone.
TEST(NcclMemory, WindowsOnSomeRanksAloneAreAFailure) {
  const auto body = [](Exchange& known, Problems& problems) {
    Asked asked;
    Found found;
    if (known.rank() != 0) found.windows = failure(Code::unsupported, "no window");
    const Created made = create(known, found, asked);
    if (asked.vmm != 0 || (known.rank() != 0 && made.ok())) problems.add("went on by the other memory");
  };
  // Rank 0's communicator waits for the others' until they are gone.
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

TEST(NcclMemory, GpusThatNcclKeepsApartStayApartUnlessTheVariableSaysOtherwise) {
  for (const bool said : {false, true}) {
    const auto body = [said](Exchange& known, Problems& problems) {
      if (said) ::setenv(kVariable, "cuda_vmm", 1);
      Asked asked;
      Found found;
      found.tested = failure(Code::unsupported, "too old");
      if (known.rank() == 1) found.may_do_without = failure(Code::unsupported, "kept apart");
      const Created made = create(known, found, asked);
      if (said) {
        if (!made.ok()) problems.add("%s", made.status().to_string().c_str());
      } else {
        test::expect_failure(problems, "create", made.status(), Code::unsupported, {"too old", "kept apart"});
        if (asked.vmm != 0) problems.add("asked for the other memory");
      }
    };
    EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
  }
}

// What fails on the second way tells why it was not the first.
TEST(NcclMemory, AFailureOfTheSecondTellsOfTheFirst) {
  const auto body = [](Exchange& known, Problems& problems) {
    Asked asked;
    Found found;
    found.tested = failure(Code::unsupported, "too old");
    if (known.rank() == 2) found.vmm = failure(Code::system_error, "no memory");
    const Created made = create(known, found, asked);
    test::expect_failure(problems, "create", made.status(), Code::system_error, {"too old", "no memory"});
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

// One rank cannot meet the others, and knows it at once: the others have the time to hear of it.
TEST(NcclMemory, ARankThatCannotMeetIsHeardOfInTime) {
  const auto body = [](Exchange& known, Problems& problems) {
    Asked asked;
    Found found;
    found.tested = failure(Code::unsupported, "too old");
    const fault_points::Planted planted([&known](const fault_points::Point& point) {
      return known.rank() == 1 && &point == &fault_points::kMeetingSocket
                 ? failure(Code::system_error, "no more sockets")
                 : Status();
    });
    const Created made = create(known, found, asked, Deadline::after(std::chrono::seconds(8)));
    if (known.rank() == 1) {
      test::expect_failure(problems, "create", made.status(), Code::system_error,
                           {"too old", "no more sockets"});
    } else {
      // Its own limit, or word of another one's.
      const Code code = made.status().code() == Code::remote_error ? Code::remote_error : Code::timeout;
      test::expect_failure(problems, "create", made.status(), code, {"too old", "rank(s) 1"});
    }
    if (asked.vmm != 0) problems.add("went on");
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

TEST(NcclMemory, OneRankAlone) {
  const auto body = [](Exchange& known, Problems& problems) {
    ::setenv(kVariable, "cuda_vmm", 1);
    Asked asked;
    const Created made = create(known, {}, asked);
    if (!made.ok() || asked.vmm != 1) problems.add("%s", made.status().to_string().c_str());
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 1, body), "");
}

TEST(NcclMemory, RanksThatSayDifferentThingsAreNamed) {
  const auto body = [](Exchange& known, Problems& problems) {
    if (known.rank() == 2) ::setenv(kVariable, "cuda_vmm", 1);
    Asked asked;
    const Created made = create(known, {}, asked);
    test::expect_failure(problems, "create", made.status(), Code::invalid_usage,
                         {"NEARLIGHT_NCCL_MEMORY", "rank 0", "nothing", "rank 2", "cuda_vmm"});
    if (asked.windows + asked.vmm != 0) problems.add("something was made");
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

}  // namespace
}  // namespace nearlight::runtime
