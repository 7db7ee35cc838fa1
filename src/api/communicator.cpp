// Asking about communicators, ending them.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/operators.hpp"
#include "api/result.hpp"

namespace nearlight::api {

namespace {

static_assert(sizeof(nearlightCommInfo_t) >= kFirstInfoBytes);
static_assert(sizeof(nearlightCommStatus_t) >= kFirstStatusBytes);
static_assert(sizeof(nearlightCounters_t) >= kFirstCountersBytes);

nearlightCommInfo_t info_of(const runtime::Communicator& communicator) {
  nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
  info.rank = communicator.rank();
  info.nranks = communicator.nranks();
  info.backend = communicator.backend();
  info.memory = communicator.memory();
  info.memory_reason = communicator.memory_reason();
  info.scratch_bytes = communicator.scratch_bytes();
  info.early_launch = communicator.early_launch() ? 1 : 0;
  return info;
}

nearlightCommStatus_t status_of(const runtime::Communicator& communicator) {
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  const auto fault = communicator.fault();
  if (!fault) return status;
  status.result = static_cast<nearlightResult_t>(fault->status.code());
  status.rank = fault->rank;
  status.peer = fault->peer;
  status.epoch = fault->epoch;
  status.region = fault->region;
  status.slot = fault->slot;
  status.expected = fault->expected;
  status.seen = fault->seen;
  status.time_ns = fault->time_ns;
  const std::string& text = fault->status.text();
  std::memcpy(status.text, text.data(), std::min(text.size(), sizeof status.text - 1));
  return status;
}

nearlightCounters_t counters_of(const runtime::Communicator& communicator) {
  nearlightCounters_t filled = NEARLIGHT_COUNTERS_INITIALIZER;
  const runtime::Counters counters = communicator.counters();
  filled.all_reduces = counters.of(Collective::all_reduce);
  filled.barriers = counters.of(Collective::barrier);
  filled.all_gathers = counters.of(Collective::all_gather) + counters.of(Collective::all_gather_v);
  filled.reduce_scatters =
      counters.of(Collective::reduce_scatter) + counters.of(Collective::reduce_scatter_v);
  filled.broadcasts = counters.of(Collective::broadcast);
  filled.reduces = counters.of(Collective::reduce);
  filled.all_to_alls = counters.of(Collective::all_to_all) + counters.of(Collective::all_to_all_v);
  filled.send_recvs = counters.of(Collective::send_recv);
  filled.all_reduce_rms_norms = counters.of(Collective::all_reduce_rms_norm);
  filled.all_reduce_biases = counters.of(Collective::all_reduce_bias);
  filled.gemv_all_reduces = counters.of(Collective::gemv_all_reduce);
  filled.all_gather_gemvs = counters.of(Collective::all_gather_gemv);
  filled.bytes = counters.bytes;
  filled.captured = counters.captured;
  filled.failures = counters.failures;
  filled.routes = counters.routes.size();
  for (std::size_t i = 0; i < std::min(counters.routes.size(), std::size(filled.route)); ++i) {
    const auto& route = counters.routes[i];
    filled.route[i] = {algorithm::name_of(route.algorithm),
                       route::protocol_name(route.algorithm, route.protocol), route.operations, route.bytes};
  }
  return filled;
}

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightCommDestroy(nearlightComm_t comm) {
  if (comm == nullptr) return nearlightSuccess;
  return guarded(__func__, [=](Where& where) -> Status {
    NL_TRY_ASSIGN(const auto communicator, remove_handle(comm));
    where.rank = communicator->rank();
    remove_operators_of(comm);
    return {};
  });
}

nearlightResult_t nearlightCommAbort(nearlightComm_t comm) {
  return guarded(__func__, [=](Where&) -> Status {
    const Visit visit(comm);
    NL_TRY(visit.status());
    visit->abort();
    return {};
  });
}

nearlightResult_t nearlightCommRank(nearlightComm_t comm, int* rank) {
  return guarded(__func__, [=](Where&) -> Status {
    if (rank == nullptr) return failure(Code::invalid_argument, "rank is NULL");
    const Visit visit(comm);
    NL_TRY(visit.status());
    *rank = visit->rank();
    return {};
  });
}

nearlightResult_t nearlightCommCount(nearlightComm_t comm, int* nranks) {
  return guarded(__func__, [=](Where&) -> Status {
    if (nranks == nullptr) return failure(Code::invalid_argument, "nranks is NULL");
    const Visit visit(comm);
    NL_TRY(visit.status());
    *nranks = visit->nranks();
    return {};
  });
}

nearlightResult_t nearlightCommGetInfo(nearlightComm_t comm, nearlightCommInfo_t* info) {
  return guarded(__func__, [=](Where&) -> Status {
    NL_TRY(check_sized("info", info, kFirstInfoBytes));
    const Visit visit(comm);
    NL_TRY(visit.status());
    hand_out(info_of(*visit), info);
    return {};
  });
}

nearlightResult_t nearlightCommGetStatus(nearlightComm_t comm, nearlightCommStatus_t* status) {
  return guarded(__func__, [=](Where&) -> Status {
    NL_TRY(check_sized("status", status, kFirstStatusBytes));
    const Visit visit(comm);
    NL_TRY(visit.status());
    hand_out(status_of(*visit), status);
    return {};
  });
}

nearlightResult_t nearlightCommGetCounters(nearlightComm_t comm, nearlightCounters_t* counters) {
  return guarded(__func__, [=](Where&) -> Status {
    NL_TRY(check_sized("counters", counters, kFirstCountersBytes));
    const Visit visit(comm);
    NL_TRY(visit.status());
    hand_out(counters_of(*visit), counters);
    return {};
  });
}
