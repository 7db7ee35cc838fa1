// MPI_Allreduce over MPI_COMM_WORLD as a contender.
#pragma once

#include <memory>

#include "cli/bench/contender.hpp"

namespace nearlight::peers {

std::unique_ptr<bench::Contender> make_openmpi_contender();

}  // namespace nearlight::peers
