// Which rank this process is, of how many, and under which key they meet: from the caller, from NEARLIGHT_*,
// or from the launcher of the job.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.hpp"

namespace nearlight::bootstrap {

// What the caller says itself; rank and nranks both or neither.
struct JobRequest {
  std::optional<int> rank, nranks;
  std::optional<std::string> key;
};

struct Job {
  int rank = 0;
  int nranks = 1;
  std::string key;
  // For people: where the three come from, each variable with its value, e.g. "rank, nranks and key from
  // torchrun: RANK=1, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, MASTER_ADDR=127.0.0.1, MASTER_PORT=29500".
  std::string source;
};

// The value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Rank and nranks come from the request, else from NEARLIGHT_RANK and NEARLIGHT_NRANKS, else from the
// launcher; the key from the request, else from NEARLIGHT_KEY, else from the launcher. The launcher is the
// first of these that has set one of its first two variables:
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; key: MASTER_ADDR, MASTER_PORT, and
//              TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT where they are set
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; key: PMIX_NAMESPACE, else
//              OMPI_MCA_ess_base_jobid
//   PMI        (MPICH, Intel MPI) PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; key: PMI_JOBID, else
//              PMI_PORT, else Slurm's
//   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NUM_NODES or
//              SLURM_NNODES; key: SLURM_JOB_ID and SLURM_STEP_ID
// The variables of the local rank and size may be missing; where they are there they must say that all ranks
// are on this host.
//
// Code::invalid_argument naming the variable that is malformed or missing; Code::unsupported for a job over
// several hosts.
Result<Job> find_job(const JobRequest& request, const Environment& environment);
// With this process's environment.
Result<Job> find_job(const JobRequest& request = {});

}  // namespace nearlight::bootstrap
