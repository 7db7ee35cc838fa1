#include "cli/peers/mpi/mpi_call.hpp"

#include <mpi.h>

namespace nearlight::peers {

Status mpi_status(int result, const char* call) {
  if (result == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  return failure(Code::system_error, "%s: %s", call, text);
}

}  // namespace nearlight::peers
