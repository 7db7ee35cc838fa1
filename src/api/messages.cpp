// Sends and receives, alone and in groups.
#include <algorithm>
#include <utility>
#include <vector>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/result.hpp"
#include "runtime/collective.hpp"
#include "runtime/messages.hpp"

namespace nearlight::api {

static_assert(static_cast<int>(Collective::send_recv) == nearlightCollectiveSendRecv);

namespace {

struct Posted {
  nearlightComm_t comm;
  struct CUstream_st* stream;
  runtime::MessageCall message;
};

// Of one thread, from nearlightGroupStart on.
struct Group {
  int depth = 0;
  std::vector<Posted> posted;
  Status refused;  // the first call that could not be posted
};

Group& group() {
  static thread_local Group of_thread;
  return of_thread;
}

Status post(const Posted& posted) {
  const Visit visit(posted.comm);
  NL_TRY(visit.status());
  NL_TRY(runtime::check_message(posted.message, visit->nranks()));
  group().posted.push_back(posted);
  return {};
}

Status send_or_receive(Where& where, bool sends, void* buffer, size_t count, nearlightDataType_t type,
                       int peer, nearlightComm_t comm, struct CUstream_st* stream) {
  const auto known_type = to_type(type);
  if (group().depth > 0) {
    Status outcome = known_type.status();
    if (outcome.ok()) outcome = post({comm, stream, {sends, buffer, count, *known_type, peer}});
    if (!outcome.ok() && group().refused.ok()) group().refused = outcome;
    return outcome;
  }
  const Call call(comm);
  if (!call) return call.status();
  where.rank = call.rank();
  NL_TRY(known_type.status());
  const runtime::MessageCall message{sends, buffer, count, *known_type, peer};
  return call->messages({&message, 1}, stream);
}

// Communicators of the group, each once, in the order of their first message.
std::vector<nearlightComm_t> communicators_of(const std::vector<Posted>& posted) {
  std::vector<nearlightComm_t> comms;
  for (const Posted& one : posted) {
    if (std::find(comms.begin(), comms.end(), one.comm) == comms.end()) comms.push_back(one.comm);
  }
  return comms;
}

Status check_streams(const std::vector<Posted>& posted) {
  for (const Posted& one : posted) {
    const auto first = std::find_if(posted.begin(), posted.end(),
                                    [&](const Posted& other) { return other.comm == one.comm; });
    if (first->stream == one.stream) continue;
    return failure(
        Code::invalid_argument,
        "stream: the messages of a communicator in a group take one stream, and there are %p and %p",
        static_cast<void*>(first->stream), static_cast<void*>(one.stream));
  }
  return {};
}

Status start(Where& where, const std::vector<Posted>& posted, nearlightComm_t comm) {
  const Call call(comm);
  if (!call) return call.status();
  where.rank = call.rank();
  std::vector<runtime::MessageCall> messages;
  struct CUstream_st* stream = nullptr;
  for (const Posted& one : posted) {
    if (one.comm != comm) continue;
    messages.push_back(one.message);
    stream = one.stream;
  }
  return call->messages(messages, stream);
}

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightSend(const void* send, size_t count, nearlightDataType_t type, int peer,
                                nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) {
    return send_or_receive(where, true, const_cast<void*>(send), count, type, peer, comm, stream);
  });
}

nearlightResult_t nearlightRecv(void* recv, size_t count, nearlightDataType_t type, int peer,
                                nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) {
    return send_or_receive(where, false, recv, count, type, peer, comm, stream);
  });
}

nearlightResult_t nearlightGroupStart(void) {
  return guarded(__func__, [](Where&) -> Status {
    ++group().depth;
    return {};
  });
}

nearlightResult_t nearlightGroupEnd(void) {
  return guarded(__func__, [](Where& where) -> Status {
    Group& open = group();
    if (open.depth == 0)
      return failure(Code::invalid_usage, "there is no group that this thread has started");
    if (--open.depth > 0) return {};
    const std::vector<Posted> posted = std::exchange(open.posted, {});
    NL_TRY(std::exchange(open.refused, {}));
    NL_TRY(check_streams(posted));
    // Those that can be started are: their peers wait for them whatever becomes of the others.
    Status outcome;
    for (const nearlightComm_t comm : communicators_of(posted)) {
      Where own{where.function};
      const Status one = start(own, posted, comm);
      if (one.ok() || !outcome.ok()) continue;
      outcome = one;
      where.rank = own.rank;
    }
    return outcome;
  });
}

nearlightResult_t nearlightGroupDrop(void) {
  return guarded(__func__, [](Where&) -> Status {
    if (group().depth == 0)
      return failure(Code::invalid_usage, "there is no group that this thread has started");
    group() = {};
    return {};
  });
}
