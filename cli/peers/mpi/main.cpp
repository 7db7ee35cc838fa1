// `nearlight bench --backend host --against openmpi`, started by mpirun: nearlight's CPU ranks and
// MPI_Allreduce in turns, in the same processes.
#include <mpi.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "cli/bench/run_host.hpp"
#include "cli/command_line.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/mpi/mpi_exchange.hpp"
#include "cli/peers/mpi/openmpi_contender.hpp"

namespace nearlight::peers {

namespace {

constexpr std::chrono::seconds kMeetLimit{60};

// Rank 0's probe needs two processors, but mpirun bound it to one.
class WholeMachine {
 public:
  WholeMachine() {
    CPU_ZERO(&before_);
    known_ = sched_getaffinity(0, sizeof before_, &before_) == 0;
    cpu_set_t all;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
    static_cast<void>(
        sched_setaffinity(0, sizeof all, &all));  // where it may not be widened, it stays as it is
  }
  ~WholeMachine() {
    if (known_) static_cast<void>(sched_setaffinity(0, sizeof before_, &before_));
  }

 private:
  cpu_set_t before_;
  bool known_;
};

Result<int> run(const bench::BenchOptions& options) {
  NL_TRY_ASSIGN(const auto exchange, make_mpi_exchange(Deadline::after(kMeetLimit)));
  const auto make_peers = [](Exchange&) -> Result<std::vector<std::unique_ptr<bench::Contender>>> {
    std::vector<std::unique_ptr<bench::Contender>> peers;
    peers.push_back(make_openmpi_contender());
    return peers;
  };
  bench::Setting setting;
  Status probed;
  if (exchange->rank() == 0) {
    const WholeMachine scope;
    auto own = bench::host_setting(exchange->nranks());
    probed = own.status();
    if (own.ok()) setting = *own;
  }
  // The others sleep meanwhile.
  NL_TRY(agree(*exchange, probed, Deadline::after(kMeetLimit)));
  return bench::bench_host_rank(*exchange, options, setting, make_peers);
}

}  // namespace

}  // namespace nearlight::peers

int main(int argc, char** argv) {
  using namespace nearlight;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  auto invocation = cli::parse_command_line(arguments);
  const bench::BenchOptions* const options =
      invocation.ok() ? std::get_if<bench::BenchOptions>(&*invocation) : nullptr;
  if (options == nullptr) {
    std::fprintf(stderr, "nearlight_mpi_bench: %s\n",
                 invocation.ok() ? "only `bench` runs here" : invocation.status().text().c_str());
    return cli::kExitUsage;
  }
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
    std::fprintf(stderr, "nearlight_mpi_bench: MPI_Init fails\n");
    return cli::kExitUnfit;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto code = peers::run(*options);
  if (!code.ok()) {
    // The others may wait in MPI for this rank.
    const int failed = bench::report_failure(code.status());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, failed);
    return failed;
  }
  MPI_Finalize();
  return *code;
}
