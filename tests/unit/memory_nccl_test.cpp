// How NCCL is found and what is said when it is not. Each case runs in a process of its own: what it loads
// stays loaded.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "memory/nccl_api.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_heap.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using memory::Nccl;

std::string in_own_process(const std::function<void(Problems&)>& body) {
  return run_ranks(Kind::processes, 1, [&](Exchange&, Problems& problems) { body(problems); });
}

void choose(const char* path) { ::setenv("NEARLIGHT_NCCL_LIB", path, 1); }

void expect_version(Problems& problems, const Result<const Nccl*>& found, int version, const char* path) {
  if (!found.ok()) return problems.add("%s", found.status().to_string().c_str());
  if (found.value()->version() != version) problems.add("version %d", found.value()->version());
  if (found.value()->path().find(path) == std::string::npos)
    problems.add("path %s", found.value()->path().c_str());
}

TEST(Nccl, FileThatIsNotThere) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose("/nowhere/libnccl.so.2");
              expect_failure(problems, "find", Nccl::find().status(), Code::unsupported,
                             {"NEARLIGHT_NCCL_LIB", "/nowhere/libnccl.so.2", "No such file"});
            }));
}

TEST(Nccl, FileThatIsNoLibrary) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose("/proc/self/cmdline");
              expect_failure(problems, "find", Nccl::find().status(), Code::unsupported,
                             {"NEARLIGHT_NCCL_LIB", "/proc/self/cmdline"});
            }));
}

TEST(Nccl, LibraryThatIsNotNccl) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose("libm.so.6");
              expect_failure(problems, "find", Nccl::find().status(), Code::unsupported,
                             {"libm.so.6", "ncclGetVersion"});
            }));
}

TEST(Nccl, TakesTheFileItIsTold) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose(FAKE_NCCL_A);
              const auto found = Nccl::find();
              expect_version(problems, found, 22304, "nearlight_fake_nccl_a");
              if (!found.ok()) return;
              if (found.value()->describe().rfind("NCCL 2.23.4 (/", 0) != 0)
                problems.add("%s", found.value()->describe().c_str());
              // One table a file.
              if (Nccl::find().value() != found.value() || Nccl::attached().value() != found.value())
                problems.add("another table");
            }));
}

TEST(Nccl, MissingSymbolIsNamedWithFileAndVersion) {
  EXPECT_EQ(
      "", in_own_process([](Problems& problems) {
        choose(FAKE_NCCL_A);
        const auto found = Nccl::find();
        if (!found.ok()) return problems.add("%s", found.status().to_string().c_str());
        const Nccl& nccl = *found.value();
        ncclWindow_vidmem* window = nullptr;
        expect_failure(problems, "window_register", nccl.window_register(nullptr, nullptr, 1, &window),
                       Code::unsupported, {"ncclCommWindowRegister", "2.23.4", "nearlight_fake_nccl_a"});
        expect_failure(problems, "lsa_team", nccl.lsa_team(nullptr).status(), Code::unsupported,
                       {"ncclTeamLsa"});
        expect_failure(problems, "mem_alloc", nccl.mem_alloc(1).status(), Code::unsupported,
                       {"ncclMemAlloc"});
        expect_failure(problems, "all_reduce", nccl.all_reduce(nullptr, nullptr, 0, 0, 0, nullptr, nullptr),
                       Code::unsupported, {"ncclAllReduce"});
        expect_failure(problems, "group_end", nccl.group_end(), Code::unsupported, {"ncclGroupEnd"});
      }));
}

TEST(Nccl, FailuresCarryNcclsOwnTexts) {
  EXPECT_EQ(
      "", in_own_process([](Problems& problems) {
        choose(FAKE_NCCL_A);
        const auto found = Nccl::find();
        if (!found.ok()) return problems.add("%s", found.status().to_string().c_str());
        const Nccl& nccl = *found.value();
        expect_failure(problems, "comm_init_rank", nccl.comm_init_rank(3, {}, 0).status(),
                       Code::invalid_usage, {"ncclCommInitRank", "invalid usage, says the fake", "2.23.4"});
        auto comm = nccl.comm_init_rank(2, {}, 0);
        if (!comm.ok()) return problems.add("%s", comm.status().to_string().c_str());
        if (nccl.comm_count(*comm).value() != 2) problems.add("count");
        expect_failure(problems, "async", nccl.comm_async_error(*comm), Code::remote_error,
                       {"the fake's last words"});
        expect_failure(problems, "group_start", nccl.group_start(), Code::in_progress, {"ncclGroupStart"});
      }));
}

TEST(Nccl, NothingToAttachTo) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose(FAKE_NCCL_A);
              expect_failure(problems, "attached", Nccl::attached().status(), Code::invalid_usage,
                             {"no NCCL is loaded"});
            }));
}

TEST(Nccl, LoadedCopyComesBeforeTheVariable) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              if (::dlopen(FAKE_NCCL_B, RTLD_NOW | RTLD_LOCAL) == nullptr)
                return problems.add("%s", ::dlerror());
              choose(FAKE_NCCL_A);
              expect_version(problems, Nccl::find(), 22809, "nearlight_fake_nccl_b");
              expect_version(problems, Nccl::attached(), 22809, "nearlight_fake_nccl_b");
            }));
}

TEST(Nccl, TableKeepsALoadedCopy) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              void* const handle = ::dlopen(FAKE_NCCL_B, RTLD_NOW | RTLD_LOCAL);
              const auto found = Nccl::attached();
              if (!found.ok()) return problems.add("%s", found.status().to_string().c_str());
              ::dlclose(handle);
              if (!found.value()->comm_init_rank(2, {}, 0).ok()) problems.add("gone");
              expect_version(problems, Nccl::attached(), 22809, "nearlight_fake_nccl_b");
            }));
}

TEST(Nccl, SeveralLoadedCopiesNeedAChoice) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              ::unsetenv("NEARLIGHT_NCCL_LIB");
              for (const char* path : {FAKE_NCCL_A, FAKE_NCCL_B}) {
                if (::dlopen(path, RTLD_NOW | RTLD_LOCAL) == nullptr) return problems.add("%s", ::dlerror());
              }
              expect_failure(problems, "attached", Nccl::attached().status(), Code::invalid_usage,
                             {"several copies", "nearlight_fake_nccl_a", "nearlight_fake_nccl_b", "not set"});
              choose("/some/other.so");
              expect_failure(problems, "attached", Nccl::attached().status(), Code::invalid_usage,
                             {"/some/other.so"});
              choose(FAKE_NCCL_A);
              expect_version(problems, Nccl::attached(), 22304, "nearlight_fake_nccl_a");
              choose(FAKE_NCCL_B);
              expect_version(problems, Nccl::find(), 22809, "nearlight_fake_nccl_b");
            }));
}

TEST(Nccl, FailedSearchLeavesNothingLoaded) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              choose("libm.so.6");
              static_cast<void>(Nccl::find());
              choose(FAKE_NCCL_A);
              expect_version(problems, Nccl::find(), 22304, "nearlight_fake_nccl_a");
            }));
}

// Where the system has NCCL, it must be understood; where it has none, the text must say so.
TEST(Nccl, SystemsOwn) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              ::unsetenv("NEARLIGHT_NCCL_LIB");
              void* const there = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
              if (there != nullptr) ::dlclose(there);
              const auto found = Nccl::find();
              if (there == nullptr) {
                return expect_failure(problems, "find", found.status(), Code::unsupported,
                                      {"cannot load NCCL", "libnccl.so.2"});
              }
              if (!found.ok()) return problems.add("%s", found.status().to_string().c_str());
              if (found.value()->version() < 20000) problems.add("version %d", found.value()->version());
            }));
}

TEST(NcclWindow, VersionsThatWereNotTestedAreRefused) {
  EXPECT_TRUE(memory::check_nccl_window_version(22809).ok());
  for (const int version : {0, 22807, 22808, 22810, 22902, 23007}) {
    const Status status = memory::check_nccl_window_version(version);
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.text().find(memory::nccl_version_text(version)), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.text().find("2.28.9"), std::string::npos) << status.to_string();
  }
}

TEST(NcclWindow, RefusesWithoutACommunicator) {
  EXPECT_EQ("", in_own_process([](Problems& problems) {
              const Deadline deadline = Deadline::after(std::chrono::seconds(60));
              expect_failure(problems, "heap",
                             memory::create_nccl_window_heap(nullptr, 64, deadline).status(),
                             Code::invalid_argument, {"comm"});
              expect_failure(problems, "exchange", memory::create_nccl_exchange(nullptr, deadline).status(),
                             Code::invalid_argument, {"comm"});
              int nothing = 0;
              auto* const comm = reinterpret_cast<ncclComm*>(&nothing);
              expect_failure(problems, "heap", memory::create_nccl_window_heap(comm, 64, deadline).status(),
                             Code::invalid_usage, {"no NCCL is loaded"});
              expect_failure(problems, "exchange", memory::create_nccl_exchange(comm, deadline).status(),
                             Code::invalid_usage, {"no NCCL is loaded"});
            }));
}

}  // namespace
}  // namespace nearlight::test
