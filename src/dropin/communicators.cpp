// NCCL's functions that make and end communicators.
#include <vector>

#include "dropin/creation.hpp"
#include "dropin/ending.hpp"
#include "dropin/last_error.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/tally.hpp"

using namespace nearlight::dropin;  // NOLINT: the entry points below are NCCL's

namespace {

// `call` makes the communicator, from `parent` where there is one.
template <class Call>
ncclResult_t made(Call call, ncclComm_t* place, const ncclConfig_t* config, ncclComm_t parent = nullptr) {
  if (InsideNccl::now()) return call();
  const NewCommunicator one[] = {{place, wish_of(config, parent)}};
  const ncclResult_t result = [&call] {
    const InsideNccl inside;
    return call();
  }();
  if (parent != nullptr && (result == ncclInProgress || !one[0].wish.blocking)) {
    // By its configuration or by NCCL_COMM_BLOCKING=0. NCCL writes its handle at some time of its own, and a
    // program may use it at once.
    note("communicator", {false, "split from one that does not block"});
    return forwarded(result);
  }
  return after_creation(result, one);
}

}  // namespace

// The table of NCCL's functions, or the end of this function.
#define NL_REAL(name)                       \
  const RealNccl* const nccl = real_nccl(); \
  if (nccl == nullptr || nccl->name == nullptr) return missing(#name)

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  NL_REAL(ncclCommInitRank);
  return made([&] { return nccl->ncclCommInitRank(comm, nranks, commId, rank); }, comm, nullptr);
}
NL_SECOND_NAME(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  NL_REAL(ncclCommInitRankConfig);
  return made([&] { return nccl->ncclCommInitRankConfig(comm, nranks, commId, rank, config); }, comm, config);
}
NL_SECOND_NAME(ncclCommInitRankConfig);

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  NL_REAL(ncclCommInitRankScalable);
  return made([&] { return nccl->ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config); },
              newcomm, config);
}
NL_SECOND_NAME(ncclCommInitRankScalable);

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  NL_REAL(ncclCommInitAll);
  if (InsideNccl::now()) return nccl->ncclCommInitAll(comm, ndev, devlist);
  const ncclResult_t result = [&] {
    const InsideNccl inside;
    return nccl->ncclCommInitAll(comm, ndev, devlist);
  }();
  std::vector<NewCommunicator> all;
  const bool made_all =
      result == ncclSuccess || result == ncclInProgress;  // the latter: NCCL_COMM_BLOCKING=0
  for (int i = 0; made_all && i < ndev; ++i) all.push_back({comm + i, wish_of(nullptr)});
  return after_creation(result, all);
}
NL_SECOND_NAME(ncclCommInitAll);

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  NL_REAL(ncclCommSplit);
  return made([&] { return nccl->ncclCommSplit(comm, color, key, newcomm, config); }, newcomm, config, comm);
}
NL_SECOND_NAME(ncclCommSplit);

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  NL_REAL(ncclCommShrink);
  // What waits for the ranks that are left out must end, as NCCL ends its own.
  if ((shrinkFlags & NCCL_SHRINK_ABORT) != 0)
    stop_companion(comm, "the communicator was shrunk, and its operations ended");
  return made(
      [&] {
        return nccl->ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
      },
      newcomm, config, comm);
}
NL_SECOND_NAME(ncclCommShrink);

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  NL_REAL(ncclCommFinalize);
  return finalize_communicator(*nccl, comm);
}
NL_SECOND_NAME(ncclCommFinalize);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  NL_REAL(ncclCommRevoke);
  stop_companion(comm, "the communicator was revoked");
  return forwarded(nccl->ncclCommRevoke(comm, revokeFlags));
}
NL_SECOND_NAME(ncclCommRevoke);

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  NL_REAL(ncclCommDestroy);
  return destroy_communicator(*nccl, comm);
}
NL_SECOND_NAME(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  NL_REAL(ncclCommAbort);
  return abort_communicator(*nccl, comm);
}
NL_SECOND_NAME(ncclCommAbort);
