// The collectives, their operators, and what would run.
#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/operators.hpp"
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
    if (is_of_header(type) && is_of_header(op)) {
      return call->all_reduce(send, recv, count, static_cast<DataType>(type), static_cast<ReduceOp>(op),
                              stream);
    }
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    NL_TRY_ASSIGN(const Reduction reduction, find_reduction(comm, op, known_type));
    return call->all_reduce(send, recv, count, known_type, reduction, stream);
  });
}

nearlightResult_t nearlightBarrier(nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    return call->barrier(stream);
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
    NL_TRY(check_bytes(count, known_type));
    const Visit visit(comm);
    NL_TRY(visit.status());
    NL_TRY_ASSIGN(const Reduction reduction, find_reduction(comm, op, known_type));
    const route::Route chosen = visit->explain_all_reduce(count, known_type, reduction.op);
    nearlightRoute_t filled = NEARLIGHT_ROUTE_INITIALIZER;
    filled.algorithm = algorithm::name_of(chosen.algorithm);
    filled.protocol = route::protocol_name(chosen);
    filled.reason = chosen.reason;
    filled.grid = chosen.grid;
    filled.threads = chosen.run_threads;
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
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    if (residence != nearlightScalarDevice && residence != nearlightScalarHostImmediate) {
      return failure(Code::invalid_argument, "residence: %d is none", static_cast<int>(residence));
    }
    const Visit visit(comm);  // so that it is not destroyed before its operator is in the table
    NL_TRY(visit.status());
    if (residence == nearlightScalarDevice) {
      return failure(
          Code::unsupported,
          "residence: this version reads no scalar in the memory of a GPU (nearlightScalarDevice); "
          "give one of the host (nearlightScalarHostImmediate)");
    }
    NL_TRY_ASSIGN(*op, add_operator(comm, *Reduction::premul_sum(known_type, scalar).factor));
    return {};
  });
}

nearlightResult_t nearlightRedOpDestroy(nearlightRedOp_t op, nearlightComm_t comm) {
  return guarded(__func__, [=](Where&) -> Status {
    const Visit visit(comm);
    NL_TRY(visit.status());
    return remove_operator(comm, op);
  });
}
