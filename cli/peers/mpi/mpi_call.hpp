// MPI's errors as Status. MPI is initialised with MPI_ERRORS_RETURN.
#pragma once

#include "base/deadline.hpp"
#include "base/status.hpp"

namespace nearlight::peers {

// `call` is the name of the function that returned `result`.
Status mpi_status(int result, const char* call);

}  // namespace nearlight::peers
