// The collectives by number, as they stand in fault records.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nearlight {

enum class Collective : std::uint32_t {
  all_reduce = 1,
  barrier = 2,
  all_gather = 3,
  reduce_scatter = 4,
  broadcast = 5,
  reduce = 6,
  all_to_all = 7,
  all_gather_v = 8,
  reduce_scatter_v = 9,
  all_to_all_v = 10,
  send_recv = 11,
  // Fused: an AllReduce of rows with what follows it.
  all_reduce_rms_norm = 16,
  all_reduce_bias = 17,
  // Of a product, tile by tile, and in front of one.
  gemv_all_reduce = 18,
  all_gather_gemv = 19,
};
inline constexpr Collective kCollectives[] = {
    Collective::all_reduce,     Collective::barrier,      Collective::all_gather,
    Collective::reduce_scatter, Collective::broadcast,    Collective::reduce,
    Collective::all_to_all,     Collective::all_gather_v, Collective::reduce_scatter_v,
    Collective::all_to_all_v,   Collective::send_recv};
// Those that have one way (runtime/one_way.hpp).
inline constexpr Collective kOneWayCollectives[] = {Collective::all_reduce_rms_norm,
                                                    Collective::all_reduce_bias, Collective::gemv_all_reduce,
                                                    Collective::all_gather_gemv};
// One more than the largest number.
inline constexpr std::size_t kCollectiveNumbers = 20;
// In fault records: a kernel of somebody's own, on channels. No call of a communicator's.
inline constexpr Collective kChannel = static_cast<Collective>(100);

// As in result files: "all_reduce"; "invalid" for anything else.
constexpr const char* name_of(Collective collective) {
  if (collective == kChannel) return "channel";
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::barrier:
      return "barrier";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::all_gather_v:
      return "all_gather_v";
    case Collective::reduce_scatter_v:
      return "reduce_scatter_v";
    case Collective::all_to_all_v:
      return "all_to_all_v";
    case Collective::send_recv:
      return "send_recv";
    case Collective::all_reduce_rms_norm:
      return "all_reduce_rms_norm";
    case Collective::all_reduce_bias:
      return "all_reduce_bias";
    case Collective::gemv_all_reduce:
      return "gemv_all_reduce";
    case Collective::all_gather_gemv:
      return "all_gather_gemv";
  }
  return "invalid";
}

// Whether its elements are added up, or what else the operator says.
constexpr bool is_reduction(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce || collective == Collective::reduce_scatter_v;
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
// Whether the ranks' parts may differ in size.
constexpr bool is_uneven(Collective collective) {
  return collective == Collective::all_gather_v || collective == Collective::reduce_scatter_v ||
         collective == Collective::all_to_all_v;
}
// Whether rows are summed up and finished where they arrive (algorithm/fused_rows.hpp).
constexpr bool is_fused(Collective collective) {
  return collective == Collective::all_reduce_rms_norm || collective == Collective::all_reduce_bias;
}
// Whether a matrix is multiplied (algorithm/gemv.hpp).
constexpr bool is_gemv(Collective collective) {
  return collective == Collective::gemv_all_reduce || collective == Collective::all_gather_gemv;
}
// Whether parts go from each rank to each other one (algorithm/parts.hpp).
constexpr bool goes_by_parts(Collective collective) {
  return collective != Collective::all_reduce && collective != Collective::barrier &&
         collective != Collective::send_recv && !is_fused(collective) && !is_gemv(collective);
}

}  // namespace nearlight
