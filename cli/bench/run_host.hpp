// The benchmark between CPU ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "bootstrap/fork_group.hpp"
#include "cli/bench/contender.hpp"
#include "cli/bench/engine.hpp"
#include "cli/bench/options.hpp"
#include "cli/bench/present.hpp"
#include "cli/results.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

struct HostJob {
  std::vector<Case> cases;
  Plan plan;
  runtime::Options comm;
  runtime::CallOptions call;
  Paired paired = Paired::none;
  std::vector<std::size_t> scratch;  // run again with each, see with_scratch(); empty: once with `comm`
  int jobs = 1;                      // communicators that do the same at the same time
  MakePeers make_peers;              // may be empty
  Progress progress;
};

struct HostResult {
  std::vector<Measured> measured;
  std::string memory;                           // of nearlight's communicator
  std::map<std::string, std::string> settings;  // as Setting::peers
};

// One rank's part, from its own process or thread. Collective.
Result<HostResult> run_host_rank(Exchange& exchange, const HostJob& job);

// What runs on the CPU, with the limits of this machine from a short probe (two threads of this process).
// Call it before this process is bound to one processor.
Result<Setting> host_setting(int ranks);

// `nearlight bench` on the CPU without peers: forks the ranks. Returns the exit status.
int bench_host(const BenchOptions& options);
// What a rank of it does, also under mpirun: rank 0 prints. The exit status; a failure when this rank or
// another one broke off. `setting`: as of host_setting.
Result<int> bench_host_rank(Exchange& exchange, const BenchOptions& options, Setting setting,
                            const MakePeers& make_peers);

// Says on stderr what failed, and returns the exit status. A rank that fails because another one did leaves
// the word to that.
int report_failure(const Status& status);
// The exit status of a group: the worst of its ranks'; a rank that was killed is told on stderr.
int exit_code_of(const bootstrap::ForkOutcome& outcome);

// Wrong elements told on stderr by the rank that saw them; the exit status.
int verdict(const std::vector<Measured>& measured);

}  // namespace nearlight::bench
