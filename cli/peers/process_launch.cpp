#include "cli/peers/process_launch.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bootstrap/fork_group.hpp"
#include "cli/bench/finish.hpp"
#include "cli/bench/meeting.hpp"
#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/bench/run_process.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/beside.hpp"

namespace nearlight::peers {

namespace {

// A benchmark that runs longer was told to: this only keeps forgotten ones from running for ever.
constexpr std::chrono::hours kRunLimit{12};
// PyTorch takes seconds to load, on a cold disk many.
constexpr std::chrono::seconds kLookLimit{120};

int exec(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "nearlight: --against torch_symm_mem: %s does not start: %s\n", argv[0],
               std::strerror(errno));
  return cli::kExitUnfit;
}

// A folder of its own for the file over which PyTorch's ranks find each other.
class StoreFolder {
 public:
  StoreFolder() {
    const char* const base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/nearlight-bench-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~StoreFolder() {
    if (path_.empty()) return;
    unlink(file().c_str());
    rmdir(path_.c_str());
  }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  bool made() const { return !path_.empty(); }
  std::string file() const { return path_ + "/store"; }

 private:
  std::string path_;
};

// The program of a PyTorch rank, or "" after saying why there is none.
std::string find_torch_program() {
  for (const char* name : {kTorchBench, kBenchLibrary}) {
    const std::string path = beside_this_program(name);
    if (access(path.c_str(), R_OK) == 0) continue;
    std::fprintf(stderr, "nearlight: --against torch_symm_mem: %s is not there\n", path.c_str());
    return "";
  }
  const std::string program = beside_this_program(kTorchBench);
  bootstrap::ForkOptions options;
  options.time_limit = kLookLimit;
  const auto look = bootstrap::run_forked(
      1,
      [&](Exchange&) {
        return exec({"python3", program, "--look"});
      },
      options);
  if (look.ok() && look->ok()) return program;
  std::fprintf(
      stderr,
      "nearlight: --against torch_symm_mem: python3 on PATH has no PyTorch with symmetric memory: %s\n",
      (look.ok() ? look->to_string() : look.status().to_string()).c_str());
  return "";
}

std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text.append(text.empty() ? "" : ",").append(std::to_string(number));
  return text;
}

}  // namespace

bool needs_processes(const bench::BenchOptions& options) {
  return bench::has_peer(options, "torch_symm_mem") || bench::has_peer(options, "nvshmem");
}

int bench_in_processes(const bench::BenchOptions& options, const std::vector<int>& devices, bool attach) {
  const bool torch = bench::has_peer(options, "torch_symm_mem");
  std::string program;
  if (torch) {
    program = find_torch_program();
    if (program.empty()) return cli::kExitUnfit;
  }
  const StoreFolder store;
  if (torch && !store.made()) {
    return bench::report_failure(system_failure("a folder for the ranks to meet in", errno));
  }
  // For every rank and all it loads: nobody uses multicast unless it was asked for.
  setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1", 0);
  setenv("NVSHMEM_DISABLE_NVLS", "1", 0);
  const std::string key =
      "nearlight bench " + std::to_string(getpid()) + " " + std::to_string(bench::now_ns());
  const auto rank_of = [&](Exchange& exchange) {
    const int rank = exchange.rank();
    if (!torch) return bench_process(options, devices, attach, rank, key, {});
    std::vector<std::string> words = {"python3",   program,
                                      "--library", beside_this_program(kBenchLibrary),
                                      "--rank",    std::to_string(rank),
                                      "--devices", list_of(devices),
                                      "--attach",  attach ? "1" : "0",
                                      "--key",     key,
                                      "--store",   store.file(),
                                      "--"};
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    return exec(std::move(words));
  };
  bootstrap::ForkOptions fork_options;
  fork_options.time_limit = kRunLimit;
  std::fflush(stdout);
  const auto outcome = bootstrap::run_forked(static_cast<int>(devices.size()), rank_of, fork_options);
  if (!outcome.ok()) return bench::report_failure(outcome.status());
  return bench::exit_code_of(*outcome);
}

int bench_process(const bench::BenchOptions& options, const std::vector<int>& devices, bool attach, int rank,
                  const std::string& key, const bench::MakePeers& make_peers) {
  auto job = bench::cuda_job(options, devices, attach);
  if (!job.ok()) return bench::report_failure(job.status());
  job->make_peers = make_peers;
  const bool speaks = rank == 0;
  if (speaks) job->progress = bench::progress_line();
  auto result = bench::run_cuda_process(*job, rank, key);
  if (speaks) bench::clear_progress_line();
  if (!result.ok()) return bench::report_failure(result.status());
  if (!speaks) return bench::verdict(result->measured);
  std::fputs(bench::heading(options, job->plan, result->setting).c_str(), stdout);
  return bench::finish(options, job->plan, result->setting, result->measured);
}

}  // namespace nearlight::peers
