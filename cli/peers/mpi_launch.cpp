#include "cli/peers/mpi_launch.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cli/bench/pin.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/beside.hpp"

namespace nearlight::peers {

int bench_under_mpirun(const bench::BenchOptions& options) {
  if (auto cases = bench::cases_of(options); !cases.ok()) {
    std::fprintf(stderr, "nearlight: %s\n", cases.status().text().c_str());
    return cli::exit_code_of(cases.status());
  }
  const std::string program = beside_this_program(kMpiBench);
  if (access(program.c_str(), X_OK) != 0) {
    std::fprintf(stderr, "nearlight: --against openmpi: %s is not there: this build was made without MPI\n",
                 program.c_str());
    return cli::kExitUnfit;
  }
  const int ranks = bench::ranks_of(options, 2);
  std::vector<std::string> words = {"mpirun", "-np", std::to_string(ranks)};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  if (ranks <= bench::usable_cpus()) {
    words.insert(words.end(), {"--bind-to", "core"});
  } else {
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  }
  words.push_back(program);
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "nearlight: --against openmpi: mpirun does not start: %s\n", std::strerror(errno));
  return cli::kExitUnfit;
}

}  // namespace nearlight::peers
