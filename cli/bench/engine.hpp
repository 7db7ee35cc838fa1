// Times several implementations against each other, at one rank: in turns (A B A B) within one run, on
// buffers of the same size, and with every result compared with a reference.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/contender.hpp"
#include "cli/bench/meeting.hpp"
#include "cli/bench/place.hpp"
#include "cli/results.hpp"
#include "trace/samples.hpp"

namespace nearlight::bench {

struct Case {
  std::size_t count = 0;  // elements of `bytes()`
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Collective collective = Collective::all_reduce;
  int root = 0;
  // nccl-tests' size: of all_gather, reduce_scatter and all_to_all the parts of all ranks together.
  std::size_t bytes() const { return count * size_of(type); }
};

struct Plan {
  cli::Mode mode = cli::Mode::eager;
  int chain = 1;               // operations a sample spans
  std::size_t samples = 1000;  // per implementation, size and variant
  std::size_t rounds = 10;     // turns in which they are taken
  std::size_t warmup = 5;      // samples before each turn that do not count
  bool check = true;
  bool in_place = true;  // also the variant with send == recv
  std::chrono::microseconds late{
      0};  // by which the last rank comes later to every start, to see what that does
  std::chrono::milliseconds budget{
      0};  // time for one size and variant, all implementations; fewer samples then. 0: none
};

// Whether the size of the collective is that of the parts of all ranks together.
constexpr bool has_part_a_rank(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::all_to_all;
}

// The largest number of samples of one turn: what a Meeting must have room for.
std::size_t samples_per_turn(const Plan& plan);

struct Measured {
  Case what;
  std::string impl;
  bool in_place = false;
  int chain = 1;
  trace::Samples samples;           // slowest rank of each
  std::vector<double> turn_p50_us;  // their median in each turn
  std::optional<cli::Cost> cost;    // as ResultRow::cost
  std::optional<double> cpu_us;     // CPU time an operation takes of its thread, on the rank where it is most
  trace::Samples skew;              // by how much the last rank came later than the first, of each start
  std::size_t wrong = 0;  // elements, over all ranks and checks; changed guard bytes and inputs count too
  bool checked = false;
  std::string first_wrong;  // in words
  Choice choice;
  std::uint64_t scratch = 0;  // as ResultRow::scratch
  int jobs = 1;               // likewise
};

// Called by rank 0 before each turn: how far the run is (0 to 1), and what comes.
using Progress = std::function<void(double done, const std::string& what)>;

class Engine {
 public:
  // `beside`: of each contender the one that does the same at the same time, a second job that is checked but
  // not timed; empty: none.
  Engine(Meeting& meeting, Place& place, std::vector<Contender*> contenders,
         std::vector<Contender*> beside = {})
      : meeting_(meeting), place_(place), contenders_(std::move(contenders)), beside_(std::move(beside)) {}

  // Buffers for messages up to `bytes`. Collective; once.
  Status reserve(std::size_t bytes);
  // One entry per contender and variant (out of place first), per case in order. The same on all ranks.
  // Collective: every rank gives the same arguments. When a rank fails, all of them do.
  Result<std::vector<Measured>> measure(const std::vector<Case>& cases, const Plan& plan,
                                        const Progress& progress = {});

 private:
  struct Lane;
  struct Sides;
  Sides sides_of(const Case& what, bool in_place) const;
  Status measure_case(const Case& what, bool in_place, const Plan& plan, std::vector<Measured>& out,
                      const std::function<void(double, const std::string&)>& progress);
  Result<std::size_t> next_turn(const Plan& plan, std::size_t taken, std::size_t turns_left,
                                std::chrono::steady_clock::time_point begin);
  Status turn(Lane& lane, const Plan& plan, std::size_t samples, std::uint64_t seed);
  Result<Buffers> buffers_for(Contender& contender, std::size_t room, Buffers& common);
  Status prepare_buffers(Lane& lane, std::uint64_t seed);
  Status prepare_buffers(const Measured& measured, const Work& work, std::uint64_t seed);
  Status check_buffers(Lane& lane, std::uint64_t seed);
  Status check_buffers(Measured& measured, const Work& work, std::uint64_t seed);
  Status check_one(Lane& lane, std::uint64_t seed);
  Status note_skew(Lane& lane);
  void abandon();
  Status settle(Lane& lane, Status status);

  Meeting& meeting_;
  Place& place_;
  std::vector<Contender*> contenders_, beside_;
  std::vector<Buffers> buffers_, beside_buffers_;  // of each contender
  std::size_t bytes_ = 0;
  std::vector<std::byte> image_;  // of one buffer with its guards, in host memory
};

}  // namespace nearlight::bench
