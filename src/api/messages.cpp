// Sends and receives, alone and in groups.
#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/result.hpp"
#include "base/collective.hpp"
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

// The right to make a communicator's call, for as long as it is under way.
struct UnderWay {
  explicit UnderWay(nearlightComm_t comm) : call(comm) {}
  Call call;
  void* stream = nullptr;
  runtime::Rest rest;
};

// An exception as the Status that it comes to: it would keep what comes behind it from being done.
template <class Work>
Status caught(const Work& work) try {
  return work();
} catch (const std::bad_alloc&) {
  return Status(Code::system_error, "out of memory");
} catch (const std::exception& error) {
  return Status(Code::system_error, error.what());
}

// Starts what the communicators have: of each all or nothing, and those that can be started are, since their
// peers wait for them whatever becomes of the others. The first failure, and the rank that had it.
class Starting {
 public:
  Starting(Where& where, std::size_t communicators) : where_(where), together_(communicators > 1) {
    under_way_.reserve(communicators);
  }

  void start(const Together& messages) {
    int rank = -1;
    Status outcome = caught([&] { return begin(messages, rank); });
    note(rank, std::move(outcome));
  }

  Status finish() {
    for (const auto& one : under_way_) finish(*one);
    return std::move(first_);
  }

 private:
  Status begin(const Together& messages, int& rank) {
    auto one = std::make_unique<UnderWay>(messages.comm);
    if (!one->call) return one->call.status();
    rank = one->call.rank();
    runtime::Communicator& comm = *one->call;
    if (!together_) return comm.messages(messages.messages, messages.stream);
    // On one stream they are in the order of their communicators, which the other ranks have as well.
    for (const auto& earlier : under_way_) {
      if (earlier->stream == messages.stream && earlier->call->device() == comm.device()) finish(*earlier);
    }
    one->stream = messages.stream;
    NL_TRY(comm.begin_messages(messages.messages, messages.stream, one->rest));
    if (one->rest) under_way_.push_back(std::move(one));
    return {};
  }
  void finish(UnderWay& one) {
    if (const runtime::Rest rest = std::exchange(one.rest, {})) note(one.call.rank(), caught(rest));
  }
  void note(int rank, Status outcome) {
    if (outcome.ok() || !first_.ok()) return;
    first_ = std::move(outcome);
    where_.rank = rank;
  }

  Where& where_;
  const bool together_;
  Status first_;
  std::vector<std::unique_ptr<UnderWay>> under_way_;
};

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
    Starting starting(where, all.size());
    for (const Together& messages : all) starting.start(messages);
    return starting.finish();
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
