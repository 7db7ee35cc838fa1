// Open MPI as a peer: the ranks are processes of mpirun, which run nearlight and MPI_Allreduce in turns.
#pragma once

#include "cli/bench/options.hpp"

namespace nearlight::peers {

// The program that mpirun starts, found beside this one.
inline constexpr const char* kMpiBench = "nearlight_mpi_bench";

// Replaces this process by mpirun; returns, with the exit status, only where that does not work.
int bench_under_mpirun(const bench::BenchOptions& options);

}  // namespace nearlight::peers
