// Which memory a communicator on top of NCCL's gets, with CPU communicators in the place of both kinds.
#include "runtime/nccl_memory.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

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
  std::string reason;
};

// `tested` and `windows`: what the two say; an ok `windows` makes a communicator.
Created create(Exchange& known, const Status& tested, const Status& windows, Asked& asked) {
  NcclMemories memories;
  memories.nccl = "NCCL 1.2.3";
  memories.windows_tested = tested;
  memories.windows = [&](const std::string& reason) -> Created {
    ++asked.windows;
    asked.reason = reason;
    if (!windows.ok()) return windows;
    return create_host(known);
  };
  memories.vmm = [&](std::unique_ptr<Exchange> met, const std::string& reason, Deadline) -> Created {
    ++asked.vmm;
    asked.reason = reason;
    return create_host(std::move(met));
  };
  return create_on_nccl_memory(known, memories, patience());
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
      {nullptr, old, ok, 0, 1, Code::ok, "NCCL 1.2.3: too old"},
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
    const Created made = create(known, expected.tested, expected.windows, asked);
    if (asked.windows != expected.windows_asked || asked.vmm != expected.vmm_asked)
      problems.add("asked for windows %d times, for the other memory %d times", asked.windows, asked.vmm);
    const std::string said = made.ok() ? asked.reason : made.status().text();
    if (made.status().code() != expected.code || said.find(expected.text) == std::string::npos)
      problems.add("%s; %s", made.status().to_string().c_str(), said.c_str());
    if (!made.ok()) return;
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
    const Created made =
        create(known, known.rank() == 1 ? failure(Code::unsupported, "too old") : Status(), {}, asked);
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
    const Created made = create(known, {}, windows, asked);
    if (made.ok() || asked.vmm != 0) problems.add("went on by the other memory");
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

TEST(NcclMemory, RanksThatSayDifferentThingsAreNamed) {
  const auto body = [](Exchange& known, Problems& problems) {
    if (known.rank() == 2) ::setenv(kVariable, "cuda_vmm", 1);
    Asked asked;
    const Created made = create(known, {}, {}, asked);
    test::expect_failure(problems, "create", made.status(), Code::invalid_usage,
                         {"NEARLIGHT_NCCL_MEMORY", "rank 0", "nothing", "rank 2", "cuda_vmm"});
    if (asked.windows + asked.vmm != 0) problems.add("something was made");
  };
  EXPECT_EQ(test::run_ranks(Kind::processes, 3, body), "");
}

}  // namespace
}  // namespace nearlight::runtime
