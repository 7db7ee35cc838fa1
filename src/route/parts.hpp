// The route of a collective that goes by parts (algorithm/parts.hpp): always one hop; LL, then packets or
// plain chunks, or the attached NCCL.
#pragma once

#include <optional>

#include "base/status.hpp"
#include "route/route.hpp"

namespace nearlight::route {

// `facts.count`: elements of the largest part. `reduces`: whether they are reduced where they arrive; else
// they are moved bit by bit, and no value is left to stand for "nothing has arrived".
Route parts(const Facts& facts, bool reduces);
// The same by a protocol that the caller gives. Code::invalid_argument, naming protocol: not for this call.
Result<Route> forced_parts(const Facts& facts, bool reduces, Protocol protocol);

// Parts of which no rank knows the largest: LL on a grid that does not follow from a size.
Route parts_of_unknown_size(const Facts& facts);
// Why a call whose parts differ in size stays here where others are sent elsewhere; null: they are not.
const char* uneven_stay(const Facts& facts);
// One message of `facts.count` elements from one rank to another, `facts.regions` being the lanes that there
// are: `grid` of them share it. By `protocol` where there is one. Never handed over for its size: a rank's
// others of the same group would wait behind it. Code::invalid_argument, naming protocol: not for messages.
Result<Route> message(const Facts& facts, std::optional<Protocol> protocol);
// NCCL, asked for by the caller. Errors as forced_nccl().
Result<Route> forced_parts_by_nccl(const Facts& facts, bool reduces);

}  // namespace nearlight::route
