// A program that is written against NCCL alone, on two GPUs, with the drop-in preloaded: this program,
// started again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tally/tally_file.hpp"
#include "tests/dropin/gpu_cases.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

namespace fs = std::filesystem;

// Beside this program in the GPU bundle; in a build where it was built.
std::string drop_in() {
  const fs::path beside = fs::path(own_program()).parent_path() / "libnearlight_nccl.so";
  return fs::exists(beside) ? beside.string() : DROP_IN;
}

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "nearlight-dropin-XXXXXX").string();
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
    fs::create_directory(path_ + "/counts");
  }
  ~Folder() { fs::remove_all(path_); }
  std::string counts() const { return path_ + "/counts"; }
  std::string meeting() const { return path_ + "/id"; }

 private:
  std::string path_;
};

using Functions = std::vector<std::string>;

// NCCL refuses two ranks on one GPU of one host, so each says that it is on a host of its own, and NCCL's
// calls go through a socket. Nearlight has its memory without NCCL.
Functions on_one_gpu(int rank) {
  const char* const given = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string all = given != nullptr && *given != '\0' ? given : "0";
  return {"NCCL_HOSTID=rank" + std::to_string(rank), "NCCL_SOCKET_IFNAME=lo",
          "CUDA_VISIBLE_DEVICES=" + all.substr(0, all.find(','))};
}

// `processes`: one a rank. `shared`: of one GPU. Checks that the program was right, and that calls of each of
// `taken` were taken; where there are none, that nothing was.
void run_program_of_nccl(const std::string& name, bool processes = false, const Functions& more = {},
                         const Functions& taken = {"AllReduce"}, bool shared = false) {
  const Folder folder;
  std::vector<std::string> environment = {"LD_PRELOAD=" + drop_in(),
                                          "NEARLIGHT_DROPIN_STATS=" + folder.counts()};
  environment.insert(environment.end(), more.begin(), more.end());
  std::vector<Spawned> programs;
  for (int rank = 0; rank < (processes ? 2 : 1); ++rank) {
    std::vector<std::string> of_rank = environment;
    if (shared) {
      const Functions one_gpu = on_one_gpu(rank);
      of_rank.insert(of_rank.end(), one_gpu.begin(), one_gpu.end());
    }
    programs.emplace_back(std::vector<std::string>{own_program(), "--case", name,
                                                   std::to_string(processes ? rank : -1), folder.meeting()},
                          of_rank);
  }
  for (Spawned& program : programs) EXPECT_EQ(program.wait(std::chrono::seconds(100)), 0) << program.output();
  const auto tallies = tally::read_tallies(folder.counts());
  ASSERT_TRUE(tallies.ok()) << tallies.status().to_string();
  EXPECT_TRUE(tallies->bad.empty());
  std::map<std::string, std::uint64_t> calls;
  for (const auto& tally : tallies->processes) {
    for (const auto& row : tally.rows) {
      if (row.taken && row.count > 0 && row.what != "communicator") calls[row.what] += row.count;
    }
  }
  const std::string text = tally::tally_text(tallies->processes);
  for (const std::string& function : taken) EXPECT_GT(calls[function], 0U) << function << "\n" << text;
  if (taken.empty()) {
    EXPECT_TRUE(calls.empty()) << text;
  }
  if (testing::Test::HasFailure() || taken.empty()) std::printf("%s", text.c_str());
}

TEST(DropInTwoGpus, TypesOperatorsCounts) { run_program_of_nccl("types"); }
TEST(DropInTwoGpus, TypesOperatorsCountsOfTwoProcesses) { run_program_of_nccl("types", true); }
TEST(DropInTwoGpus, Graphs) { run_program_of_nccl("graphs"); }
TEST(DropInTwoGpus, GraphsOfTwoProcesses) { run_program_of_nccl("graphs", true); }
TEST(DropInTwoGpus, Groups) { run_program_of_nccl("groups"); }
TEST(DropInTwoGpus, GroupsOfTwoProcesses) { run_program_of_nccl("groups", true); }
TEST(DropInTwoGpus, StreamsThatNothingJoins) { run_program_of_nccl("streams"); }
TEST(DropInTwoGpus, StreamsOfTwoProcesses) { run_program_of_nccl("streams", true); }
TEST(DropInTwoGpus, SplitAbortedAndDestroyed) { run_program_of_nccl("communicators"); }
TEST(DropInTwoGpus, SplitAbortedAndDestroyedInTwoProcesses) { run_program_of_nccl("communicators", true); }
TEST(DropInTwoGpus, ThreadsWithARankEach) { run_program_of_nccl("threads"); }
TEST(DropInTwoGpus, NonBlockingCommunicators) { run_program_of_nccl("non_blocking"); }
const Functions kTakeAll = {"NEARLIGHT_DROPIN_TAKES=all"};
const Functions kAll = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll"};
TEST(DropInTwoGpus, GroupsWithEveryFunctionTaken) {
  run_program_of_nccl("groups", false, kTakeAll, {"AllReduce", "AllGather"});
}
TEST(DropInTwoGpus, GroupsWithEveryFunctionTakenInTwoProcesses) {
  run_program_of_nccl("groups", true, kTakeAll, {"AllReduce", "AllGather"});
}
TEST(DropInTwoGpus, EveryFunction) { run_program_of_nccl("every_function", false, kTakeAll, kAll); }
TEST(DropInTwoGpus, EveryFunctionOfTwoProcesses) {
  run_program_of_nccl("every_function", true, kTakeAll, kAll);
}
// The same by NCCL but for AllReduce: the test's own check of the program.
TEST(DropInTwoGpus, EveryFunctionWithAllReduceTaken) { run_program_of_nccl("every_function"); }
TEST(DropInTwoGpus, ARankThatIsDoneFirst) { run_program_of_nccl("left", true); }
// All by NCCL: the test's own check of the program, and of the switch.
TEST(DropInTwoGpus, SwitchedOff) { run_program_of_nccl("groups", false, {"NEARLIGHT_DROPIN=0"}, {}); }
// Two-shot and one-shot need neither multicast nor NVLink SHARP.
TEST(DropInTwoGpus, WithoutMulticast) { run_program_of_nccl("groups", false, {"NCCL_NVLS_ENABLE=0"}); }
// GPUs that NCCL keeps apart: nearlight does not attach, NCCL carries all, and one reason says so.
TEST(DropInTwoGpus, WithoutPeerAccess) { run_program_of_nccl("groups", false, {"NCCL_P2P_DISABLE=1"}, {}); }
// Memory that has nothing to do with NCCL, by the switch.
const Functions kOwnMemory = {"NEARLIGHT_NCCL_MEMORY=cuda_vmm"};
TEST(DropInTwoGpus, MemoryWithoutNccl) { run_program_of_nccl("groups", false, kOwnMemory); }
TEST(DropInTwoGpus, MemoryWithoutNcclOfTwoProcesses) { run_program_of_nccl("types", true, kOwnMemory); }

// Two processes that take turns on one GPU.
void run_on_one_gpu(const std::string& name, Functions more = {}, const Functions& taken = {"AllReduce"}) {
  more.insert(more.end(), kOwnMemory.begin(), kOwnMemory.end());
  run_program_of_nccl(name, true, more, taken, true);
}
// These ranks have no windows together, which is found out, and the other memory taken, without a word.
TEST(DropInSharedGpu, WithoutWindows) { run_program_of_nccl("left", true, {}, {"AllReduce"}, true); }
TEST(DropInSharedGpu, TypesOperatorsCounts) { run_on_one_gpu("types"); }
TEST(DropInSharedGpu, Graphs) { run_on_one_gpu("graphs"); }
TEST(DropInSharedGpu, Groups) { run_on_one_gpu("groups"); }
TEST(DropInSharedGpu, StreamsThatNothingJoins) { run_on_one_gpu("streams"); }
TEST(DropInSharedGpu, SplitAbortedAndDestroyed) { run_on_one_gpu("communicators"); }
TEST(DropInSharedGpu, GroupsWithEveryFunctionTaken) {
  run_on_one_gpu("groups", kTakeAll, {"AllReduce", "AllGather"});
}
TEST(DropInSharedGpu, EveryFunction) { run_on_one_gpu("every_function", kTakeAll, kAll); }
TEST(DropInSharedGpu, EveryFunctionWithAllReduceTaken) { run_on_one_gpu("every_function"); }
TEST(DropInSharedGpu, ARankThatIsDoneFirst) { run_on_one_gpu("left"); }
TEST(DropInSharedGpu, SwitchedOff) { run_on_one_gpu("groups", {"NEARLIGHT_DROPIN=0"}, {}); }

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--case")
    return nearlight::test::run_gpu_case(argv[2], std::atoi(argv[3]), argv[4]);
  return nearlight::test::gpu_test_main(argc, argv);
}
