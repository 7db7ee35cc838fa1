// What rank 0 shows and keeps of a run: tables, the result file, the exit status.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/bench/engine.hpp"
#include "cli/bench/options.hpp"
#include "cli/results.hpp"

namespace nearlight::bench {

struct Setting {
  std::string backend;    // "host", "cuda"
  std::string memory;     // "shm", "cuda_vmm", "nccl_window"
  std::string placement;  // Communicator::placement() of the first one
  int ranks = 0;
  std::vector<std::string> places;  // where each rank runs: "device  0 [NVIDIA H200]"
  cli::Machine machine;
  cli::Floors floors;
  std::map<std::string, std::string> peers;  // how each peer was set up, by its name in result files
};

std::vector<cli::ResultRow> rows_of(const std::vector<Measured>& measured, const Setting& setting,
                                    cli::Mode mode);

// Lines that begin with '#': what is run, where.
std::string heading(const BenchOptions& options, const Plan& plan, const Setting& setting);
// How the peers were set up, and the environment, which they read; lines that begin with '#'. "" without
// peers.
std::string peer_settings(const Setting& setting);
// All tables, an implementation each, and what was wrong.
std::string tables(const BenchOptions& options, const Plan& plan, const Setting& setting,
                   const std::vector<Measured>& measured);
// What a result file of this run holds; `rows`: out of place only.
cli::ResultFile file_of(const std::vector<std::string>& arguments, const Setting& setting,
                        std::vector<cli::ResultRow> rows);
// Writes it to the path of --json; "" for nowhere.
Status keep(const std::string& path, const cli::ResultFile& file);

// What a run that is turn `turn` of `turns` tells of its progress.
Progress part_of(const Progress& whole, std::size_t turn, std::size_t turns);
// A line on stderr that is written over, and only where stderr is a terminal.
Progress progress_line();
// Removes it.
void clear_progress_line();

}  // namespace nearlight::bench
