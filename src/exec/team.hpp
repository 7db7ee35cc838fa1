// Threads that have a row of numbers between them: one group, or several that can wait for each other. A team
// is what their sums need.
//
//   void begin()            before the first sum; may be long before it, and costs nothing there
//   float sum(float mine)   over all threads of the team, who all call it; the same bits for each, and in
//                           every run, by an order that follows from the numbers of threads and groups alone
#pragma once

#include <concepts>

namespace nearlight::exec {

template <class T>
concept Team = requires(T team, float mine) {
  team.begin();
  { team.sum(mine) } -> std::same_as<float>;
};

// A single thread.
struct SoloTeam {
  void begin() {}
  float sum(float mine) { return mine; }
};
static_assert(Team<SoloTeam>);

}  // namespace nearlight::exec
