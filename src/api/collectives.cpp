// The collectives, their operators, and what would run.
#include <algorithm>
#include <iterator>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/operators.hpp"
#include "api/result.hpp"
#include "base/collective.hpp"
#include "runtime/fused_call.hpp"

namespace nearlight::api {

static_assert(sizeof(nearlightRoute_t) >= kFirstRouteBytes);
static_assert(static_cast<int>(Collective::all_reduce) == nearlightCollectiveAllReduce);
static_assert(static_cast<int>(Collective::all_gather) == nearlightCollectiveAllGather);
static_assert(static_cast<int>(Collective::reduce_scatter) == nearlightCollectiveReduceScatter);
static_assert(static_cast<int>(Collective::broadcast) == nearlightCollectiveBroadcast);
static_assert(static_cast<int>(Collective::reduce) == nearlightCollectiveReduce);
static_assert(static_cast<int>(Collective::all_to_all) == nearlightCollectiveAllToAll);
static_assert(static_cast<int>(Collective::all_gather_v) == nearlightCollectiveAllGatherV);
static_assert(static_cast<int>(Collective::reduce_scatter_v) == nearlightCollectiveReduceScatterV);
static_assert(static_cast<int>(Collective::all_to_all_v) == nearlightCollectiveAllToAllV);
static_assert(static_cast<int>(Collective::all_reduce_rms_norm) == nearlightCollectiveAllReduceRmsNorm);
static_assert(static_cast<int>(Collective::all_reduce_bias) == nearlightCollectiveAllReduceBias);

namespace {

// Of a collective that moves elements and reduces nothing.
nearlightResult_t move(const char* name, Collective collective, const void* send, void* recv, size_t count,
                       nearlightDataType_t type, int root, nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(name, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    return call->collective({collective, send, recv, count, known_type, ReduceOp::sum, root}, stream);
  });
}

nearlightResult_t reduce(const char* name, Collective collective, const void* send, void* recv, size_t count,
                         nearlightDataType_t type, nearlightRedOp_t op, int root, nearlightComm_t comm,
                         struct CUstream_st* stream) {
  return guarded(name, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    NL_TRY_ASSIGN(const Reduction reduction, find_reduction(comm, op, known_type));
    return call->collective({collective, send, recv, count, known_type, reduction, root}, stream);
  });
}

void hand_out_route(const route::Route& chosen, nearlightRoute_t* route) {
  nearlightRoute_t filled = NEARLIGHT_ROUTE_INITIALIZER;
  filled.algorithm = algorithm::name_of(chosen.algorithm);
  filled.protocol = route::protocol_name(chosen);
  filled.reason = chosen.reason;
  filled.grid = chosen.grid;
  filled.threads = chosen.run_threads;
  hand_out(filled, route);
}

bool is_known(nearlightCollective_t collective) {
  return std::any_of(std::begin(kCollectives), std::end(kCollectives), [collective](Collective known) {
    return known != Collective::barrier && static_cast<int>(known) == static_cast<int>(collective);
  });
}

}  // namespace

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

nearlightResult_t nearlightAllGather(const void* send, void* recv, size_t send_count,
                                     nearlightDataType_t type, nearlightComm_t comm,
                                     struct CUstream_st* stream) {
  return move(__func__, Collective::all_gather, send, recv, send_count, type, 0, comm, stream);
}

nearlightResult_t nearlightReduceScatter(const void* send, void* recv, size_t recv_count,
                                         nearlightDataType_t type, nearlightRedOp_t op, nearlightComm_t comm,
                                         struct CUstream_st* stream) {
  return reduce(__func__, Collective::reduce_scatter, send, recv, recv_count, type, op, 0, comm, stream);
}

nearlightResult_t nearlightBroadcast(const void* send, void* recv, size_t count, nearlightDataType_t type,
                                     int root, nearlightComm_t comm, struct CUstream_st* stream) {
  return move(__func__, Collective::broadcast, send, recv, count, type, root, comm, stream);
}

nearlightResult_t nearlightReduce(const void* send, void* recv, size_t count, nearlightDataType_t type,
                                  nearlightRedOp_t op, int root, nearlightComm_t comm,
                                  struct CUstream_st* stream) {
  return reduce(__func__, Collective::reduce, send, recv, count, type, op, root, comm, stream);
}

nearlightResult_t nearlightAllToAll(const void* send, void* recv, size_t count, nearlightDataType_t type,
                                    nearlightComm_t comm, struct CUstream_st* stream) {
  return move(__func__, Collective::all_to_all, send, recv, count, type, 0, comm, stream);
}

nearlightResult_t nearlightAllGatherV(const void* send, void* recv, const size_t* recv_counts,
                                      const size_t* recv_places, nearlightDataType_t type,
                                      nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    return call->collective({.collective = Collective::all_gather_v,
                             .send = send,
                             .recv = recv,
                             .count = 0,
                             .type = known_type,
                             .counts = recv_counts,
                             .places = recv_places},
                            stream);
  });
}

nearlightResult_t nearlightReduceScatterV(const void* send, void* recv, const size_t* recv_counts,
                                          nearlightDataType_t type, nearlightRedOp_t op, nearlightComm_t comm,
                                          struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    NL_TRY_ASSIGN(const Reduction reduction, find_reduction(comm, op, known_type));
    return call->collective({.collective = Collective::reduce_scatter_v,
                             .send = send,
                             .recv = recv,
                             .count = 0,
                             .type = known_type,
                             .op = reduction,
                             .counts = recv_counts},
                            stream);
  });
}

nearlightResult_t nearlightAllToAllV(const void* send, const size_t* send_counts, const size_t* send_places,
                                     void* recv, const size_t* recv_counts, const size_t* recv_places,
                                     nearlightDataType_t type, nearlightComm_t comm,
                                     struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    return call->collective({.collective = Collective::all_to_all_v,
                             .send = send,
                             .recv = recv,
                             .count = 0,
                             .type = known_type,
                             .counts = recv_counts,
                             .places = recv_places,
                             .send_counts = send_counts,
                             .send_places = send_places},
                            stream);
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
    if (is_fused(static_cast<Collective>(collective)))
      return failure(Code::invalid_argument, "collective: of %s nearlightExplainFused tells",
                     name_of(static_cast<Collective>(collective)));
    if (is_gemv(static_cast<Collective>(collective)))
      return failure(Code::invalid_argument, "collective: of %s nearlightExplainGemv tells",
                     name_of(static_cast<Collective>(collective)));
    if (!is_known(collective)) {
      return failure(Code::invalid_argument, "collective: %d is none", static_cast<int>(collective));
    }
    NL_TRY_ASSIGN(const DataType known_type, to_type(type));
    NL_TRY(check_bytes(count, known_type));
    const Visit visit(comm);
    NL_TRY(visit.status());
    const auto known = static_cast<Collective>(collective);
    Reduction reduction = ReduceOp::sum;
    if (is_reduction(known)) {
      NL_TRY_ASSIGN(reduction, find_reduction(comm, op, known_type));
    }
    const auto explain = [&]() -> Result<route::Route> {
      if (known == Collective::all_reduce) return visit->explain_all_reduce(count, known_type, reduction.op);
      if (known == Collective::send_recv)
        return visit->explain_message({true, nullptr, count, known_type, 0});
      return visit->explain({known, nullptr, nullptr, count, known_type, reduction});
    };
    NL_TRY_ASSIGN(const route::Route chosen, explain());
    hand_out_route(chosen, route);
    return {};
  });
}

namespace {

// Of calls that have one way: `is_one` says which, `what` in words.
template <class OneWay, class Explain>
nearlightResult_t explain_one_way(const char* function, bool (*is_one)(Collective), const char* what,
                                  nearlightComm_t comm, OneWay call, nearlightDataType_t type,
                                  nearlightRoute_t* route, Explain explain) {
  return guarded(function, [=](Where&) -> Status {
    OneWay asked = call;
    NL_TRY(check_sized("route", route, kFirstRouteBytes));
    if (!is_one(asked.collective))
      return failure(Code::invalid_argument, "collective: %d is no %s", static_cast<int>(asked.collective),
                     what);
    if (asked.tokens == 0) return failure(Code::invalid_argument, "tokens is 0: nothing would run");
    NL_TRY_ASSIGN(asked.type, to_type(type));
    const Visit visit(comm);
    NL_TRY(visit.status());
    NL_TRY_ASSIGN(const auto chosen, explain(*visit, asked));
    hand_out_route(chosen, route);
    return {};
  });
}

}  // namespace

nearlightResult_t nearlightExplainFused(nearlightComm_t comm, nearlightCollective_t collective, size_t tokens,
                                        size_t hidden, nearlightDataType_t type, nearlightRoute_t* route) {
  runtime::FusedCall call;
  call.collective = static_cast<Collective>(collective);
  call.tokens = tokens;
  call.hidden = hidden;
  return explain_one_way(__func__, is_fused, "fused one", comm, call, type, route,
                         [](const runtime::Communicator& communicator, runtime::FusedCall asked) {
                           asked.output_type = asked.type;
                           return communicator.explain_fused(asked);
                         });
}

nearlightResult_t nearlightExplainGemv(nearlightComm_t comm, nearlightCollective_t collective, size_t tokens,
                                       size_t in_size, size_t out_size, nearlightDataType_t type,
                                       nearlightRoute_t* route) {
  runtime::GemvCall call;
  call.collective = static_cast<Collective>(collective);
  call.tokens = tokens;
  call.in = in_size;
  call.out = out_size;
  return explain_one_way(__func__, is_gemv, "product", comm, call, type, route,
                         [](const runtime::Communicator& communicator, const runtime::GemvCall& asked) {
                           return communicator.explain_gemv(asked);
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
