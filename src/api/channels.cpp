// Memory for the channels of kernels that are not the library's, and what they did in the trace.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include <nearlight/device.h>
#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/result.hpp"

namespace nearlight::api {

namespace {

// As the first version of the header has them.
constexpr std::size_t kFirstChannelConfigBytes = 32, kFirstChannelBytes = 112, kFirstSpanBytes = 56;
static_assert(sizeof(nearlightSpan_t) >= kFirstSpanBytes);
static_assert(sizeof(nearlightChannelConfig_t) >= kFirstChannelConfigBytes);
static_assert(sizeof(nearlightChannel_t) >= kFirstChannelBytes);

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightChannelCreate(nearlightComm_t comm, const nearlightChannelConfig_t* config,
                                         nearlightChannel_t* channel) {
  return guarded(__func__, [=](Where& where) -> Status {
    NL_TRY(check_sized("config", config, kFirstChannelConfigBytes));
    NL_TRY(check_sized("channel", channel, kFirstChannelBytes));
    nearlightChannelConfig_t mine{};
    std::memcpy(&mine, config, std::min(config->size, sizeof mine));
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    protocol::ChannelShape shape;
    shape.channels = mine.channels == 0 ? 1 : mine.channels;
    shape.slots = mine.slots;
    shape.packets = mine.packets;
    shape.cells = mine.cells;
    shape.checks = mine.checks;
    NL_TRY_ASSIGN(const protocol::ChannelMemory memory, call->make_channels(shape, mine.peers));
    nearlightChannel_t filled = NEARLIGHT_CHANNEL_INITIALIZER;
    filled.base = memory.base;
    filled.stride = memory.stride;
    filled.own = memory.own;
    filled.abort = memory.abort;
    filled.claim = memory.claim;
    filled.valid = memory.valid;
    filled.record = memory.record;
    filled.timeout_ns = memory.timeout_ns;
    filled.rank = memory.rank;
    filled.nranks = memory.shape.nranks;
    filled.channels = memory.shape.channels;
    filled.slots = memory.shape.slots;
    filled.packets = memory.shape.packets;
    filled.cells = memory.shape.cells;
    filled.peers = memory.peers;
    filled.checks = memory.shape.checks;
    filled.collective = memory.collective;
    hand_out(filled, channel);
    return {};
  });
}

nearlightResult_t nearlightChannelDestroy(nearlightComm_t comm, const nearlightChannel_t* channel) {
  return guarded(__func__, [=](Where& where) -> Status {
    NL_TRY(check_sized("channel", channel, kFirstChannelBytes));
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    return call->free_channels(static_cast<const char*>(channel->own));
  });
}

nearlightResult_t nearlightCommTraceSpan(nearlightComm_t comm, const nearlightSpan_t* span) {
  return guarded(__func__, [=](Where& where) -> Status {
    NL_TRY(check_sized("span", span, kFirstSpanBytes));
    nearlightSpan_t mine{};
    std::memcpy(&mine, span, std::min(span->size, sizeof mine));
    const Visit visit(comm);
    NL_TRY(visit.status());
    where.rank = visit->rank();
    if (mine.name == nullptr) return failure(Code::invalid_argument, "name is NULL");
    if (mine.reserved != 0) return failure(Code::invalid_argument, "reserved: %u is not 0", mine.reserved);
    return visit->add_span(
        {mine.name, mine.track, mine.begin_ns, mine.end_ns, mine.to, mine.from, mine.message});
  });
}
