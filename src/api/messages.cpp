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
  Status refused;     // the first call that could not be posted
  bool whole = true;  // no call has ended by an exception, which may be all that is left of it
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
  if (Group& open = group(); open.depth > 0) {
    const bool was_whole = std::exchange(open.whole, false);
    Status outcome = known_type.status();
    if (outcome.ok()) outcome = post({comm, stream, {sends, buffer, count, *known_type, peer}});
    if (!outcome.ok() && open.refused.ok()) open.refused = outcome;
    open.whole = was_whole;
    return outcome;
  }
  const Call call(comm);
  if (!call) return call.status();
  where.rank = call.rank();
  NL_TRY(known_type.status());
  const runtime::MessageCall message{sends, buffer, count, *known_type, peer};
  return call->messages({&message, 1}, stream);
}

// What a communicator has in the group.
struct Together {
  nearlightComm_t comm;
  struct CUstream_st* stream;
  std::vector<runtime::MessageCall> messages;
};

// In the order of their first messages.
Result<std::vector<Together>> by_communicator(const std::vector<Posted>& posted) {
  std::vector<Together> all;
  for (const Posted& one : posted) {
    auto at =
        std::find_if(all.begin(), all.end(), [&](const Together& other) { return other.comm == one.comm; });
    if (at == all.end()) at = all.insert(at, Together{one.comm, one.stream, {}});
    if (at->stream != one.stream) {
      return failure(
          Code::invalid_argument,
          "stream: the messages of a communicator in a group take one stream, and there are %p and %p",
          static_cast<void*>(at->stream), static_cast<void*>(one.stream));
    }
    at->messages.push_back(one.message);
  }
  return all;
}

// Of one communicator all or none. No exception gets out, which would leave the others' unstarted.
Status start(Where& where, const Together& messages) try {
  const Call call(messages.comm);
  if (!call) return call.status();
  where.rank = call.rank();
  return call->messages(messages.messages, messages.stream);
} catch (const std::bad_alloc&) {
  return Status(Code::system_error, "out of memory");
} catch (const std::exception& error) {
  return Status(Code::system_error, error.what());
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
    const Group closed = std::exchange(open, {});
    NL_TRY(closed.refused);
    if (!closed.whole)
      return failure(Code::system_error, "there was no memory for a message of the group: none is started");
    NL_TRY_ASSIGN(const auto all, by_communicator(closed.posted));
    // Those that can be started are: their peers wait for them whatever becomes of the others.
    Status outcome;
    for (const Together& messages : all) {
      Where own{where.function};
      Status one = start(own, messages);
      if (one.ok() || !outcome.ok()) continue;
      outcome = std::move(one);
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
