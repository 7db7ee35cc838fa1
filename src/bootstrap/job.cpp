#include "bootstrap/job.hpp"

#include <cinttypes>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/variables.hpp"
#include "bootstrap/process_group.hpp"

namespace nearlight::bootstrap {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<int>::max();

using variables::kKey;
using variables::kNranks;
using variables::kRank;
using variables::whole_number;
static_assert(kNranks.highest == kMaxProcessRanks && kRank.highest == kMaxProcessRanks - 1);

// Reads variables and keeps what it has read.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool is_set(const char* name) const { return environment_(name) != nullptr; }
  // Unset: no value.
  std::optional<std::string> text(const char* name) {
    const char* const value = environment_(name);
    if (value == nullptr) return std::nullopt;
    read_ += (read_.empty() ? "" : ", ") + std::string(name) + "=" + value;
    return value;
  }
  Result<std::optional<int>> number(const char* name, std::int64_t lowest, std::int64_t highest) {
    const auto value = text(name);
    if (!value) return std::optional<int>();
    NL_TRY_ASSIGN(const std::int64_t number, whole_number(name, value->c_str(), lowest, highest));
    return std::optional<int>(static_cast<int>(number));
  }
  // What was read since the last call: "RANK=1, WORLD_SIZE=2".
  std::string take_read() { return std::exchange(read_, {}); }

 private:
  const Environment& environment_;
  std::string read_;
};

struct Numbers {
  int rank, nranks;
};

Status not_set(const std::string& whose, const char* missing, const char* because) {
  return failure(Code::invalid_argument, "%s: %s is not set, but %s is", whose.c_str(), missing, because);
}

// Two variables that come together.
Result<Numbers> rank_and_size(Reader& reader, const std::string& whose, const char* rank_name,
                              const char* size_name, std::int64_t most = kMost) {
  if (!reader.is_set(rank_name)) return not_set(whose, rank_name, size_name);
  if (!reader.is_set(size_name)) return not_set(whose, size_name, rank_name);
  const std::string rank_text = *reader.text(rank_name);
  NL_TRY_ASSIGN(const auto size, reader.number(size_name, 1, most));
  NL_TRY_ASSIGN(const std::int64_t rank, whole_number(rank_name, rank_text.c_str(), 0, *size - 1));
  return Numbers{static_cast<int>(rank), *size};
}

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* size_of_step;  // instead of `size` where it is set; null: none
  const char* local_rank;
  const char* local_size;  // null: none
  const char* nodes[2];    // null: none; the first that is set counts
  Result<std::string> (*key)(Reader&);
};

Status no_key(const char* launcher, const char* missing) {
  return failure(
      Code::invalid_argument,
      "key: %s: %s is not set, and nothing else names the job; set %s to the same text on all ranks",
      launcher, missing, kKey.name);
}

Result<std::string> torchrun_key(Reader& reader) {
  const auto address = reader.text("MASTER_ADDR");
  if (!address || address->empty()) return no_key("torchrun", "MASTER_ADDR");
  NL_TRY_ASSIGN(const auto port, reader.number("MASTER_PORT", 1, 65535));
  if (!port) return no_key("torchrun", "MASTER_PORT");
  std::string key = "torchrun/" + *address + ":" + std::to_string(*port);
  // A job that torchrun has started again must not meet what is left of the first attempt.
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    if (const auto value = reader.text(name)) key += "/" + *value;
  }
  return key;
}

Result<std::string> openmpi_key(Reader& reader) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (const auto value = reader.text(name); value && !value->empty()) return "openmpi/" + *value;
  }
  return no_key("Open MPI", "PMIX_NAMESPACE");
}

Result<std::string> slurm_key(Reader& reader) {
  const auto job = reader.text("SLURM_JOB_ID");
  if (!job || job->empty()) return no_key("Slurm", "SLURM_JOB_ID");
  // A batch script has all of Slurm's variables but this one, and is not one of several ranks.
  const auto step = reader.text("SLURM_STEP_ID");
  if (!step || step->empty()) return no_key("Slurm (not started by srun?)", "SLURM_STEP_ID");
  return "slurm/" + *job + "." + *step;
}

Result<std::string> pmi_key(Reader& reader) {
  for (const char* name : {"PMI_JOBID", "PMI_PORT"}) {
    if (const auto value = reader.text(name); value && !value->empty()) return "pmi/" + *value;
  }
  if (reader.is_set("SLURM_JOB_ID") && reader.is_set("SLURM_STEP_ID")) return slurm_key(reader);
  return no_key("PMI", "PMI_JOBID");  // MPICH's mpiexec sets neither
}

// Launchers start each other (torchrun under srun, mpirun in a batch script) and their variables are
// inherited: the innermost first.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", nullptr, "LOCAL_RANK", "LOCAL_WORLD_SIZE", {}, torchrun_key},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     nullptr,
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {},
     openmpi_key},
    {"PMI", "PMI_RANK", "PMI_SIZE", nullptr, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {}, pmi_key},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     nullptr,
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
     slurm_key},
};

const Launcher* find_launcher(const Reader& reader) {
  for (const Launcher& launcher : kLaunchers) {
    if (reader.is_set(launcher.rank) || reader.is_set(launcher.size)) return &launcher;
  }
  return nullptr;
}

Status several_hosts(const Launcher& launcher, const char* local_name, int local, const char* name,
                     int whole) {
  return failure(Code::unsupported,
                 "%s: %s is %d and %s is %d: a job over several hosts, or of several launchers on one; only "
                 "ranks of one host can meet. For a group on this host give rank, nranks and key",
                 launcher.name, local_name, local, name, whole);
}

Result<Numbers> numbers_of(const Launcher& launcher, Reader& reader) {
  const char* size = launcher.size;
  if (launcher.size_of_step != nullptr && reader.is_set(launcher.size_of_step)) size = launcher.size_of_step;
  NL_TRY_ASSIGN(const Numbers numbers, rank_and_size(reader, launcher.name, launcher.rank, size));
  if (launcher.local_size != nullptr) {
    NL_TRY_ASSIGN(const auto local, reader.number(launcher.local_size, 1, kMost));
    if (local && *local != numbers.nranks)
      return several_hosts(launcher, launcher.local_size, *local, size, numbers.nranks);
  }
  NL_TRY_ASSIGN(const auto local_rank, reader.number(launcher.local_rank, 0, kMost));
  if (local_rank && *local_rank != numbers.rank)
    return several_hosts(launcher, launcher.local_rank, *local_rank, launcher.rank, numbers.rank);
  for (const char* name : launcher.nodes) {
    if (name == nullptr || !reader.is_set(name)) continue;
    NL_TRY_ASSIGN(const auto nodes, reader.number(name, 1, kMost));
    if (*nodes != 1) {
      return failure(
          Code::unsupported,
          "%s: %s is %d: a job over several hosts; only ranks of one host can meet. For a group on "
          "this host give rank, nranks and key",
          launcher.name, name, *nodes);
    }
    break;
  }
  return numbers;
}

Status nobody_says(const char* what) {
  return failure(Code::invalid_argument,
                 "%s: neither given nor found: no %s, %s and %s, and no launcher (torchrun, Open MPI, PMI, "
                 "Slurm) has set its variables",
                 what, kRank.name, kNranks.name, kKey.name);
}

}  // namespace

Result<Job> find_job(const JobRequest& request, const Environment& environment) {
  Reader reader(environment);
  const Launcher* const launcher = find_launcher(reader);
  Job job;

  std::string numbers_from = "the caller";
  Numbers numbers{};
  bool by_launcher = false;
  if (request.rank.has_value() || request.nranks.has_value()) {
    if (!request.rank) return failure(Code::invalid_argument, "rank: not given, but nranks is");
    if (!request.nranks) return failure(Code::invalid_argument, "nranks: not given, but rank is");
    numbers = {*request.rank, *request.nranks};
  } else if (reader.is_set(kRank.name) || reader.is_set(kNranks.name)) {
    NL_TRY_ASSIGN(numbers, rank_and_size(reader, "nearlight", kRank.name, kNranks.name, kNranks.highest));
    numbers_from = reader.take_read();
  } else {
    if (launcher == nullptr) return nobody_says("rank and nranks");
    NL_TRY_ASSIGN(numbers, numbers_of(*launcher, reader));
    numbers_from = std::string(launcher->name) + ": " + reader.take_read();
    by_launcher = true;
  }
  job.rank = numbers.rank;
  job.nranks = numbers.nranks;

  if (request.key.has_value()) {
    job.key = *request.key;
    job.source = "rank and nranks from " + numbers_from + "; key from the caller";
  } else if (auto given = reader.text(kKey.name)) {
    if (given->empty()) return failure(Code::invalid_argument, "%s is empty", kKey.name);
    job.key = *given;
    job.source = "rank and nranks from " + numbers_from + "; key from " + reader.take_read();
  } else {
    if (launcher == nullptr) return nobody_says("key");
    NL_TRY_ASSIGN(job.key, launcher->key(reader));
    const std::string key_from = reader.take_read();
    job.source = by_launcher ? "rank, nranks and key from " + numbers_from + ", " + key_from
                             : "rank and nranks from " + numbers_from + "; key from " + launcher->name +
                                   ": " + key_from;
  }
  return job;
}

Result<Job> find_job(const JobRequest& request) {
  return find_job(request, [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace nearlight::bootstrap
