#include "cli/run_command.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/variables.hpp"
#include "cli/child_program.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/beside.hpp"
#include "tally/tally_file.hpp"

#ifndef NEARLIGHT_LIBRARIES_FROM_PROGRAMS
#define NEARLIGHT_LIBRARIES_FROM_PROGRAMS "../lib"
#endif

namespace nearlight::cli {

namespace {

// Beside the program, where it was built or carried to; else where it was installed.
Result<std::string> find_library(const std::string& name) {
  std::string places;
  for (const char* const folder : {"", NEARLIGHT_LIBRARIES_FROM_PROGRAMS "/"}) {
    const std::string path = peers::beside_this_program((folder + name).c_str());
    if (::access(path.c_str(), R_OK) == 0) return path;
    places += (places.empty() ? "" : ", ") + path;
  }
  return failure(Code::unsupported,
                 "run: there is no %s (looked for: %s); this build may have been made without NCCL's headers",
                 name.c_str(), places.c_str());
}

// In front of what the variable has already.
std::pair<std::string, std::string> in_front(const char* name, const std::string& path) {
  const char* const there = std::getenv(name);
  return {name, there != nullptr && *there != '\0' ? path + ":" + there : path};
}

int tell(const Status& status) {
  std::fprintf(stderr, "nearlight: %s\n", status.text().c_str());
  return exit_code_of(status);
}

Result<Environment> environment_of(const RunOptions& options, const std::optional<ChildFolder>& folder) {
  Environment environment;
  NL_TRY_ASSIGN(const std::string drop_in, find_library("libnearlight_nccl.so"));
  environment.push_back(in_front("LD_PRELOAD", drop_in));
  if (options.audit) {
    NL_TRY_ASSIGN(const std::string audit, find_library("libnearlight_nccl_audit.so"));
    environment.push_back(in_front("LD_AUDIT", audit));
  }
  if (!options.nccl.empty()) {
    if (::access(options.nccl.c_str(), R_OK) != 0)
      return failure(Code::invalid_argument, "--nccl: %s cannot be read", options.nccl.c_str());
    environment.emplace_back(variables::kNcclLib.name, options.nccl);
  }
  if (folder) environment.emplace_back(variables::kDropInStats.name, folder->path());
  return environment;
}

void print_stats(const std::string& folder) {
  const auto tallies = tally::read_tallies(folder);
  if (!tallies.ok()) {
    tell(tallies.status());
    return;
  }
  for (const Status& bad : tallies->bad)
    std::fprintf(stderr, "nearlight: left out: %s\n", bad.text().c_str());
  if (tallies->processes.empty()) {
    std::fprintf(stderr, "nearlight: no process called NCCL\n");
  } else {
    std::fprintf(stderr, "nearlight: what the drop-in took and passed on\n%s",
                 tally::tally_text(tallies->processes).c_str());
  }
}

}  // namespace

int run_command(const RunOptions& options) {
  std::optional<ChildFolder> folder;
  if (options.stats) {
    auto made = ChildFolder::make();
    if (!made.ok()) return tell(made.status());
    folder.emplace(std::move(made).value());
  }
  const auto environment = environment_of(options, folder);
  if (!environment.ok()) return tell(environment.status());
  // With nothing to do behind it there is no need to stay.
  if (!folder) return become_program(options.command, environment.value());
  const auto code = run_child(options.command, environment.value());
  if (!code.ok()) return tell(code.status());
  print_stats(folder->path());
  return code.value();
}

}  // namespace nearlight::cli
