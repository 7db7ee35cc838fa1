// Whether lines of 128 bytes arrive whole between two GPUs: what lies between them, and what a test of it
// found. LL128 and sums of lines rest on it; nothing but this test promises it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace nearlight::probe {

// What a store from one GPU to another goes through, the best first. NVLink alone is known to keep lines
// whole: what goes through a CPU or a PCIe bridge may come in pieces.
enum class PathType { nvl, pxb, phb, sys, c2c, same_gpu, unknown };
// "NVLink", "PCIe bridges", ...
const char* name_of(PathType path);

// What is known of two GPUs; a plain value, so that tests can make one up.
struct PathFacts {
  bool same_gpu = false;
  bool seen = true;             // whether this process sees the other GPU
  bool peer_access = false;     // one reaches the other's memory
  bool native_atomics = false;  // all of them, in the other's memory: of NVLink and PCIe, NVLink alone
  bool coherent_cpu = false;    // a CPU beside the GPU that shares its memory by C2C, which has them as well
  // Where the two stand: from the root of the PCI tree on, "pci0000:00/0000:00:01.0/0000:01:00.0"; "" where
  // that is not known. And the number of the NUMA node, -1 likewise.
  std::string place, other_place;
  int node = -1, other_node = -1;
};
PathType path_of(const PathFacts& facts);

// Lines that a rank receives from each neighbour at least in the test of lines, of stores, and of adds.
inline constexpr std::uint64_t kTestLines = 10'000'000;

// How the test of lines sends and looks.
enum class LineWay {
  together,   // as LL128 does: the whole warp in one instruction
  in_pieces,  // as LL128 does where a warp has fallen apart: the word last, and looked at first
  torn        // wrong: the half of a line with the word goes first
};

enum class LineVerdict {
  not_run,  // where lines would not be used whatever came out
  torn,     // some came in pieces
  late,     // not all came in time
  whole,
};
// "not tested", "torn", ...
const char* name_of(LineVerdict verdict);

struct LineCounts {
  std::uint64_t lines = 0;  // that were received and looked at
  std::uint64_t torn = 0;   // of them, not whole
  std::uint64_t missing = 0;
};
// Of a test that was to look at `wanted` lines.
LineVerdict verdict_of(const LineCounts& counts, std::uint64_t wanted);

// The same on all ranks of a group.
struct LineReport {
  PathType path = PathType::unknown;  // the worst between two of them
  LineVerdict stores = LineVerdict::not_run, adds = LineVerdict::not_run;
  LineCounts of_stores, of_adds;  // the fewest lines and the most torn of a rank
};
// For a person, in one line.
std::string describe(const LineReport& report);

}  // namespace nearlight::probe
