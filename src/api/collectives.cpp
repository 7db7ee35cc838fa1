// The collectives, their operators, and what would run.
#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/result.hpp"
#include "runtime/collective.hpp"

namespace nearlight::api {

static_assert(sizeof(nearlightRoute_t) >= kFirstRouteBytes);
static_assert(static_cast<int>(Collective::all_reduce) == nearlightCollectiveAllReduce);

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightAllReduce(const void* send, void* recv, size_t count, nearlightDataType_t type,
                                     nearlightRedOp_t op, nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    // A good call builds no more than one Status.
    if (is_known(type) && is_known(op)) {
      return call->all_reduce(send, recv, count, static_cast<DataType>(type), static_cast<ReduceOp>(op),
                              stream);
    }
    NL_TRY(to_type(type).status());
    return to_op(op).status();
  });
}

nearlightResult_t nearlightExplain(nearlightComm_t comm, nearlightCollective_t collective, size_t count,
                                   nearlightDataType_t type, nearlightRedOp_t op, nearlightRoute_t* route) {
  return guarded(__func__, [=](Where&) -> Status {
    NL_TRY(check_sized("route", route, kFirstRouteBytes));
    if (collective != nearlightCollectiveAllReduce) {
      return failure(Code::invalid_argument, "collective: %d is none", static_cast<int>(collective));
    }
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    NL_TRY_ASSIGN(const ReduceOp known_op, to_op(op));
    NL_TRY(check_bytes(count, known_type));
    const Visit visit(comm);
    NL_TRY(visit.status());
    const route::Route chosen = visit->explain_all_reduce(count, known_type, known_op);
    nearlightRoute_t filled = NEARLIGHT_ROUTE_INITIALIZER;
    filled.algorithm = algorithm::name_of(chosen.algorithm);
    filled.protocol = algorithm::name_of(chosen.protocol);
    filled.reason = chosen.reason;
    filled.grid = chosen.grid;
    filled.threads = chosen.threads;
    hand_out(filled, route);
    return {};
  });
}

nearlightResult_t nearlightRedOpCreatePreMulSum(nearlightRedOp_t* op, const void* scalar,
                                                nearlightDataType_t type,
                                                nearlightScalarResidence_t residence, nearlightComm_t comm) {
  return guarded(__func__, [=](Where&) -> Status {
    if (op == nullptr) return failure(Code::invalid_argument, "op is NULL");
    if (scalar == nullptr) return failure(Code::invalid_argument, "scalar is NULL");
    NL_TRY(to_type(type).status());
    if (residence != nearlightScalarDevice && residence != nearlightScalarHostImmediate) {
      return failure(Code::invalid_argument, "residence: %d is none", static_cast<int>(residence));
    }
    const Visit visit(comm);
    NL_TRY(visit.status());
    return failure(Code::unsupported, "op: this version has no pre-multiplied sum");
  });
}

nearlightResult_t nearlightRedOpDestroy(nearlightRedOp_t op, nearlightComm_t comm) {
  return guarded(__func__, [=](Where&) -> Status {
    const Visit visit(comm);
    NL_TRY(visit.status());
    return failure(Code::invalid_argument, "op: %d was not created for this communicator",
                   static_cast<int>(op));
  });
}
