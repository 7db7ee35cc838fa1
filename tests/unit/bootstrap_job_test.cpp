#include "bootstrap/job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace nearlight::bootstrap {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<Job> find(const Variables& variables, const JobRequest& request = {}) {
  return find_job(request, [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

Variables torchrun() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}
Variables openmpi() {
  return {{"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"PMIX_NAMESPACE", "prterun-host-77@1"}};
}
Variables pmi() {
  return {{"PMI_RANK", "0"},
          {"PMI_SIZE", "2"},
          {"MPI_LOCALRANKID", "0"},
          {"MPI_LOCALNRANKS", "2"},
          {"PMI_JOBID", "kvs_9"}};
}
Variables slurm() {
  return {{"SLURM_PROCID", "3"},   {"SLURM_NTASKS", "8"},         {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "3"},  {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NNODES", "2"},
          {"SLURM_JOB_ID", "123"}, {"SLURM_STEP_ID", "0"}};
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  EXPECT_EQ(variables.erase(name), 1u) << name;
  return variables;
}

void expect_job(const Result<Job>& job, int rank, int nranks, const std::string& key) {
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->rank, rank);
  EXPECT_EQ(job->nranks, nranks);
  EXPECT_EQ(job->key, key);
}
void expect_failure(const Result<Job>& job, Code code, std::initializer_list<const char*> words) {
  ASSERT_FALSE(job.ok()) << job->source;
  EXPECT_EQ(job.status().code(), code) << job.status().to_string();
  for (const char* word : words) EXPECT_THAT(job.status().text(), HasSubstr(word));
}

TEST(FindJob, Torchrun) {
  const auto job = find(torchrun());
  expect_job(job, 1, 4, "torchrun/127.0.0.1:29500");
  EXPECT_EQ(job->source,
            "rank, nranks and key from torchrun: RANK=1, WORLD_SIZE=4, LOCAL_WORLD_SIZE=4, LOCAL_RANK=1, "
            "MASTER_ADDR=127.0.0.1, MASTER_PORT=29500");
  // A second attempt of the same job is another meeting.
  const auto again =
      find(with(with(torchrun(), "TORCHELASTIC_RUN_ID", "r7"), "TORCHELASTIC_RESTART_COUNT", "2"));
  expect_job(again, 1, 4, "torchrun/127.0.0.1:29500/r7/2");
  // Set by hand, as PyTorch's env:// takes them.
  expect_job(find(without(without(torchrun(), "LOCAL_RANK"), "LOCAL_WORLD_SIZE")), 1, 4,
             "torchrun/127.0.0.1:29500");
}

TEST(FindJob, OpenMpi) {
  const auto job = find(openmpi());
  expect_job(job, 2, 3, "openmpi/prterun-host-77@1");
  EXPECT_THAT(job->source, HasSubstr("Open MPI: OMPI_COMM_WORLD_RANK=2, OMPI_COMM_WORLD_SIZE=3"));
  EXPECT_THAT(job->source, HasSubstr("PMIX_NAMESPACE=prterun-host-77@1"));
  expect_job(find(with(without(openmpi(), "PMIX_NAMESPACE"), "OMPI_MCA_ess_base_jobid", "42")), 2, 3,
             "openmpi/42");
}

TEST(FindJob, Pmi) {
  expect_job(find(pmi()), 0, 2, "pmi/kvs_9");
  expect_job(find(with(without(pmi(), "PMI_JOBID"), "PMI_PORT", "host:4711")), 0, 2, "pmi/host:4711");
  auto under_slurm = without(pmi(), "PMI_JOBID");
  under_slurm.merge(slurm());
  expect_job(find(under_slurm), 0, 2, "slurm/123.0");
  // MPICH's own mpiexec names no job.
  expect_failure(find(without(pmi(), "PMI_JOBID")), Code::invalid_argument, {"key", "PMI", "NEARLIGHT_KEY"});
  expect_job(find(with(without(pmi(), "PMI_JOBID"), "NEARLIGHT_KEY", "mine")), 0, 2, "mine");
}

TEST(FindJob, Slurm) {
  const auto job = find(slurm());
  expect_job(job, 3, 4, "slurm/123.0");
  EXPECT_THAT(job->source, HasSubstr("Slurm: SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4"));
  expect_job(find(with(without(slurm(), "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS", "5")), 3, 5, "slurm/123.0");
  // A batch script looks like rank 0 of the whole allocation.
  expect_failure(find(without(slurm(), "SLURM_STEP_ID")), Code::invalid_argument, {"SLURM_STEP_ID", "srun"});
}

TEST(FindJob, TheInnermostLauncherCounts) {
  auto all = slurm();
  all.merge(pmi());
  EXPECT_THAT(find(all)->source, HasSubstr("from PMI"));
  all.merge(openmpi());
  EXPECT_THAT(find(all)->source, HasSubstr("from Open MPI"));
  all.merge(torchrun());
  EXPECT_THAT(find(all)->source, HasSubstr("from torchrun"));
  // An address alone is no launcher's rank.
  auto exported = openmpi();
  exported["MASTER_ADDR"] = "10.0.0.1";
  exported["MASTER_PORT"] = "1234";
  EXPECT_THAT(find(exported)->source, HasSubstr("from Open MPI"));
}

TEST(FindJob, SeveralHostsAreRefused) {
  expect_failure(find(with(torchrun(), "LOCAL_WORLD_SIZE", "2")), Code::unsupported,
                 {"torchrun", "LOCAL_WORLD_SIZE is 2", "WORLD_SIZE is 4", "several hosts"});
  auto by_hand = without(with(torchrun(), "RANK", "3"), "LOCAL_WORLD_SIZE");
  expect_failure(find(by_hand), Code::unsupported, {"LOCAL_RANK is 1", "RANK is 3", "several hosts"});
  expect_failure(find(with(openmpi(), "OMPI_COMM_WORLD_LOCAL_SIZE", "1")), Code::unsupported,
                 {"Open MPI", "OMPI_COMM_WORLD_LOCAL_SIZE is 1", "OMPI_COMM_WORLD_SIZE is 3"});
  expect_failure(find(with(pmi(), "MPI_LOCALNRANKS", "1")), Code::unsupported, {"MPI_LOCALNRANKS is 1"});
  expect_failure(find(with(slurm(), "SLURM_STEP_NUM_NODES", "2")), Code::unsupported,
                 {"Slurm", "SLURM_STEP_NUM_NODES is 2"});
  expect_failure(find(without(slurm(), "SLURM_STEP_NUM_NODES")), Code::unsupported, {"SLURM_NNODES is 2"});
  // A group on one of them can still be told by hand.
  expect_job(find(with(torchrun(), "LOCAL_WORLD_SIZE", "2"), {.rank = 0, .nranks = 2, .key = {}}), 0, 2,
             "torchrun/127.0.0.1:29500");
}

TEST(FindJob, WhatIsMissingIsNamed) {
  struct Case {
    Variables variables;
    const char* missing;
  };
  const Case cases[] = {
      {without(torchrun(), "RANK"), "RANK is not set"},
      {without(torchrun(), "WORLD_SIZE"), "WORLD_SIZE is not set"},
      {without(torchrun(), "MASTER_ADDR"), "MASTER_ADDR is not set"},
      {with(torchrun(), "MASTER_ADDR", ""), "MASTER_ADDR is not set"},
      {without(torchrun(), "MASTER_PORT"), "MASTER_PORT is not set"},
      {without(openmpi(), "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
      {without(openmpi(), "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"},
      {without(openmpi(), "PMIX_NAMESPACE"), "PMIX_NAMESPACE is not set"},
      {without(pmi(), "PMI_RANK"), "PMI_RANK is not set"},
      {without(pmi(), "PMI_SIZE"), "PMI_SIZE is not set"},
      {without(slurm(), "SLURM_PROCID"), "SLURM_PROCID is not set"},
      {without(slurm(), "SLURM_JOB_ID"), "SLURM_JOB_ID is not set"},
      {{{"NEARLIGHT_RANK", "0"}}, "NEARLIGHT_NRANKS is not set"},
      {{{"NEARLIGHT_NRANKS", "2"}}, "NEARLIGHT_RANK is not set"},
      {{}, "NEARLIGHT_RANK"},
  };
  for (const Case& one : cases) expect_failure(find(one.variables), Code::invalid_argument, {one.missing});
  // Half of one launcher does not fall back to another one that is whole.
  auto half = slurm();
  half["RANK"] = "0";
  expect_failure(find(half), Code::invalid_argument, {"torchrun", "WORLD_SIZE is not set"});
}

TEST(FindJob, WhatIsMalformedIsNamed) {
  struct Case {
    Variables (*of)();
    const char* name;
    std::vector<const char*> values;
  };
  const Case cases[] = {
      {torchrun, "RANK", {"", "x", "-1", "4", "1.0", " 1", "99999999999"}},
      {torchrun, "WORLD_SIZE", {"", "0", "-4", "four", "2147483648"}},
      {torchrun, "LOCAL_WORLD_SIZE", {"", "0", "x"}},
      {torchrun, "LOCAL_RANK", {"", "-1", "x"}},
      {torchrun, "MASTER_PORT", {"", "0", "65536", "http"}},
      {openmpi, "OMPI_COMM_WORLD_RANK", {"", "3", "x"}},
      {openmpi, "OMPI_COMM_WORLD_SIZE", {"", "0", "x"}},
      {openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", {"", "x"}},
      {pmi, "PMI_RANK", {"", "2", "x"}},
      {pmi, "PMI_SIZE", {"", "0", "x"}},
      {slurm, "SLURM_PROCID", {"", "4", "x"}},
      {slurm, "SLURM_STEP_NUM_TASKS", {"", "0", "x"}},
      {slurm, "SLURM_STEP_NUM_NODES", {"", "0", "x"}},
  };
  for (const Case& one : cases) {
    for (const char* value : one.values) {
      expect_failure(find(with(one.of(), one.name, value)), Code::invalid_argument,
                     {(std::string(one.name) + " is \"" + value + "\"").c_str(), "whole number"});
    }
  }
  const Variables own = {{"NEARLIGHT_RANK", "2"}, {"NEARLIGHT_NRANKS", "2"}, {"NEARLIGHT_KEY", "k"}};
  expect_failure(find(own), Code::invalid_argument, {"NEARLIGHT_RANK is \"2\"", "from 0 to 1"});
  expect_failure(find(with(own, "NEARLIGHT_NRANKS", "65")), Code::invalid_argument,
                 {"NEARLIGHT_NRANKS is \"65\"", "from 1 to 64"});
  expect_failure(find(with(with(own, "NEARLIGHT_RANK", "1"), "NEARLIGHT_KEY", "")), Code::invalid_argument,
                 {"NEARLIGHT_KEY is empty"});
}

TEST(FindJob, OwnVariablesStandAboveTheLauncher) {
  auto variables = openmpi();
  variables["NEARLIGHT_RANK"] = "0";
  variables["NEARLIGHT_NRANKS"] = "2";
  const auto job = find(variables);
  expect_job(job, 0, 2, "openmpi/prterun-host-77@1");
  EXPECT_EQ(job->source,
            "rank and nranks from NEARLIGHT_RANK=0, NEARLIGHT_NRANKS=2; key from Open MPI: "
            "PMIX_NAMESPACE=prterun-host-77@1");
  variables["NEARLIGHT_KEY"] = "mine";
  EXPECT_EQ(find(variables)->source,
            "rank and nranks from NEARLIGHT_RANK=0, NEARLIGHT_NRANKS=2; key from NEARLIGHT_KEY=mine");
}

TEST(FindJob, TheCallerStandsAboveAll) {
  // Nothing of the launcher's is looked at, not even what is wrong.
  auto variables = with(torchrun(), "RANK", "nonsense");
  variables["NEARLIGHT_RANK"] = "7";
  const auto job = find(variables, {.rank = 1, .nranks = 2, .key = "k"});
  expect_job(job, 1, 2, "k");
  EXPECT_EQ(job->source, "rank and nranks from the caller; key from the caller");
  expect_job(find({{"NEARLIGHT_KEY", "n"}}, {.rank = 1, .nranks = 2, .key = {}}), 1, 2, "n");
  expect_job(find(openmpi(), {.rank = {}, .nranks = {}, .key = "k"}), 2, 3, "k");
  expect_failure(find({}, {.rank = 1, .nranks = {}, .key = "k"}), Code::invalid_argument,
                 {"nranks: not given"});
  expect_failure(find({}, {.rank = {}, .nranks = 1, .key = "k"}), Code::invalid_argument,
                 {"rank: not given"});
  expect_failure(find({}, {.rank = 0, .nranks = 1, .key = {}}), Code::invalid_argument,
                 {"key", "NEARLIGHT_KEY"});
}

TEST(FindJob, ReadsTheProcessesEnvironment) {
  ::setenv("NEARLIGHT_RANK", "4", 1);
  ::setenv("NEARLIGHT_NRANKS", "5", 1);
  ::setenv("NEARLIGHT_KEY", "from the environment", 1);
  const auto job = find_job();
  for (const char* name : {"NEARLIGHT_RANK", "NEARLIGHT_NRANKS", "NEARLIGHT_KEY"}) ::unsetenv(name);
  expect_job(job, 4, 5, "from the environment");
}

}  // namespace
}  // namespace nearlight::bootstrap
