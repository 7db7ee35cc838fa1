// Random collectives on GPU ranks of one process, eager and in graphs, every result checked on the GPU. One
// number, the seed, decides what the ranks do; only the machine decides who is when where.
#pragma once

#include <cstdint>
#include <string>

namespace nearlight::test {

struct GpuStorm {
  std::uint64_t seed = 1;
  // It ends when either is reached; 0: not limited by it.
  std::uint64_t operations = 10'000;
  std::uint64_t seconds = 0;
  int gpus = 1;
  int ranks = 0;         // 0: the seeds choose, 2 to 8
  bool windows = false;  // on NCCL's windows: as many ranks as GPUs
  bool staged = false;   // some calls are made by the CPU

  // What a test of the storm itself plants, from the middle of each group on.
  enum class Plant {
    none,
    other_input,  // the last rank reduces something else than the others expect
    stays_away,   // the last rank leaves out a call, with a limit of 500 ms
  } plant = Plant::none;
};

struct GpuStormOutcome {
  std::uint64_t operations = 0;  // made by each rank, each collective counted once; replays count
  std::uint64_t eager = 0, replayed = 0, barriers = 0, hops = 0, held = 0;
  std::uint64_t messages = 0;  // groups of them; those in a graph count once
  std::uint64_t staged = 0;    // calls that were made by the CPU; those in a graph count once
  std::uint64_t groups = 0;
  std::uint64_t wrong = 0;  // checks that found something, on all ranks
  std::uint64_t stuck = 0;  // ranks that waited until the time limit
  double seconds = 0;
  std::string problems;  // "" when all was well, else what and how to run it again
  std::string to_string() const;
};

// A storm goes in groups of ranks, one after the other: group g has the seed `seed + g` and up to
// kGpuGroupOperations operations, and a communicator with random options. A group goes in stretches, of eager
// calls or of a graph that is replayed: AllReduce of every type, operator, protocol, algorithm and place, any
// count, groups of sends and receives, and barriers, on two streams joined by events, with ranks held up on
// the host, on the stream and inside calls. Stops after the first group that went wrong.
inline constexpr std::uint64_t kGpuGroupOperations = 40'000;
GpuStormOutcome run_gpu_storm(const GpuStorm& storm);

// "--seed N --operations N --seconds N --gpus N --ranks N --windows 0|1 --staged 0|1", and "--plant 1|2"
// where something is.
std::string command_line_of(const GpuStorm& storm);
// The same read; false, and `error`, for one that is none, or that cannot be.
bool read_command_line(int argc, char** argv, GpuStorm& storm, std::string& error);

}  // namespace nearlight::test
