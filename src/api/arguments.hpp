// Arguments of the C entry points, checked and turned into what the library uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <nearlight/nearlight.h>
#include "base/status.hpp"
#include "base/types.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::api {

// Whether the header has it. Operators that a program made are in operators.hpp.
inline bool is_of_header(nearlightDataType_t type) { return size_of(static_cast<DataType>(type)) != 0; }
inline bool is_of_header(nearlightRedOp_t op) { return op >= nearlightSum && op <= nearlightAvg; }

// Code::invalid_argument: it is none.
Result<DataType> to_type(nearlightDataType_t type);

// count elements of `type` have a size that an address space can hold.
Status check_bytes(std::size_t count, DataType type);

// Sizes of the structs in the first version that had them: the least that is accepted.
inline constexpr std::size_t kFirstConfigBytes = 40, kFirstInfoBytes = 40, kFirstStatusBytes = 560,
                             kFirstRouteBytes = 40, kFirstCountersBytes = 568, kFirstRmsNormBytes = 88;

// `config` may be null.
Result<runtime::Options> to_options(const nearlightConfig_t* config);

// `name`: of the argument. The struct begins with its size, at least `least` bytes.
Status check_sized(const char* name, const void* given, std::size_t least);

// Gives `filled` to a caller whose struct may be shorter (an older header: the rest is cut) or longer (a
// newer one: the rest becomes zero) than ours. The caller's size stays.
template <class Struct>
void hand_out(const Struct& filled, Struct* out) {
  std::size_t size = 0;
  std::memcpy(&size, out, sizeof size);
  const auto* const from = reinterpret_cast<const char*>(&filled);
  auto* const to = reinterpret_cast<char*>(out);
  const std::size_t known = std::min(size, sizeof filled);
  std::memcpy(to + sizeof size, from + sizeof size, known - sizeof size);
  if (size > known) std::memset(to + known, 0, size - known);
}

}  // namespace nearlight::api
