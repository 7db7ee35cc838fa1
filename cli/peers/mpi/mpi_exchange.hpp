// The ranks of MPI_COMM_WORLD, processes of one machine, as an Exchange.
#pragma once

#include <memory>

#include "base/exchange.hpp"

namespace nearlight::peers {

// After MPI_Init. Collective. Code::unsupported when the processes are not all of one machine and user.
Result<std::unique_ptr<Exchange>> make_mpi_exchange(Deadline deadline);

}  // namespace nearlight::peers
