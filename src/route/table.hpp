// The route table: the numbers by which the route chooses, one set for each kind of machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "algorithm/kinds.hpp"

namespace nearlight::route {

// Where a table's numbers come from; the reason of a route says so, unless they were measured on this GPU.
enum class Origin {
  measured,  // shipped, and measured on such a machine
  assumed,   // shipped, and measured on another one
  file,      // NEARLIGHT_ROUTE_TABLE
};

// Plain numbers, in one type so that they can be listed (fields_of). The same on all ranks of a group, as
// they decide what a rank sends and expects. Those of GPUs that are limits count the bytes sent by one rank:
// the message times the other ranks.
struct Table {
  Origin origin = Origin::measured;
  std::uint64_t ll_limit_bytes = 0;        // LL up to here; on CPU ranks bytes of the message
  std::uint64_t sentinel_first_bytes = 0;  // packets without flags from here on, for types that have them,
  std::uint64_t sentinel_limit_bytes = 0;  // to the first of this and one round
  // Likewise, where code takes its operator at run time.
  std::uint64_t sentinel_any_first_bytes = 0, sentinel_any_limit_bytes = 0;
  // LL128, for types without a sentinel, where lines arrive whole.
  std::uint64_t ll128_first_bytes = 0, ll128_limit_bytes = 0;
  // What a rank sends less by two-shot must be more than this: what the second way costs.
  std::uint64_t two_shot_gain_bytes = 0;
  // Handed to NCCL, where one is attached, from here on. 0: never.
  std::uint64_t nccl_first_bytes = 0;
  std::uint64_t few_ctas = 1;           // CTAs of all but the largest messages
  std::uint64_t ll_threads = 32;        // of a CTA
  std::uint64_t ll_large_threads = 32;  // likewise, of messages above 64 KiB
  std::uint64_t simple_threads = 32;
  std::uint64_t simple_cta_bytes = 1;  // no CTA more before each has so much
};

inline constexpr const char* kMeasuredGpu = "NVIDIA H200";
// Packets of a region, at most.
inline constexpr std::uint32_t kMostPackets = 1u << 20;

// Measured crossovers, see docs/dev/lab.md.
inline constexpr Table kCpuTable{.ll_limit_bytes = 32};
inline constexpr Table kH200Table{.ll_limit_bytes = 512 * 1024,
                                  .sentinel_first_bytes = 4 * 1024,
                                  .sentinel_limit_bytes = 8 * 1024 * 1024,
                                  .sentinel_any_first_bytes = 16 * 1024,
                                  .sentinel_any_limit_bytes = 2 * 1024 * 1024,
                                  // LL128 is not taken by itself before it has been measured (0: never).
                                  // 0.85 us at 340 GB/s, both measured between two GPUs. Where the two
                                  // meet has not been measured, for want of more GPUs.
                                  .two_shot_gain_bytes = 288 * 1024,
                                  // Not measured yet.
                                  .nccl_first_bytes = 0,
                                  .few_ctas = algorithm::kFewCtas,
                                  .ll_threads = 128,
                                  .ll_large_threads = 512,
                                  .simple_threads = 512,
                                  // Below that a flag costs more than the bytes it covers.
                                  .simple_cta_bytes = 8192};

// What a table is for. `gpu_name`: as CUDA tells it; "" where the ranks' GPUs differ.
struct Target {
  bool gpu = false;
  std::string gpu_name;
  int nranks = 1;
};

// The table that is shipped for it. For a GPU that nobody has measured it is the H200's, marked as assumed.
Table shipped_table(const Target& target);

// The largest grid, by the SMs of the smallest GPU and the ranks on one. All CTAs of all ranks of a GPU must
// be resident together, with room for another kernel of the kind: at most half the SMs, but nearly all of a
// large GPU that a rank has to itself, for its largest messages alone (kFewCtas).
std::uint32_t regions_of(int sms, int ranks_per_gpu);

// Packets of a region (a multiple of 512), so that what the table gives to the sentinel goes in one round.
std::uint32_t packets_for(const Table& table, int nranks, std::uint32_t regions);

// Lines of LL128 of a region (a multiple of 4), so that what the table gives to it goes in one round, and not
// less than the two-shot that adds has use for.
std::uint32_t lines_for(const Table& table, int nranks, std::uint32_t regions);
// Of a region, at most.
inline constexpr std::uint32_t kMostLines = 1u << 17;

// One number of a table, by name.
using TableNumber = std::uint64_t Table::*;
struct TableField {
  const char* name;
  TableNumber value;
  std::uint64_t lowest, highest, step;  // what it can be: lowest <= value <= highest, a multiple of step
};
std::span<const TableField> fields_of(bool gpu);

// Differs, but for chance, where two tables of one kind differ in a number.
std::uint64_t digest_of(const Table& table);

// In words: "shipped for NVIDIA H200".
std::string describe(const Table& table, const Target& target);

}  // namespace nearlight::route
