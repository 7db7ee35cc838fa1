# SPDX-License-Identifier: Apache-2.0
# MPI is only ever a peer to measure, in programs and tests. Sets NEARLIGHT_HAS_MPI to 1 or 0; with 1 there
# is the target MPI::MPI_C.
set(NEARLIGHT_HAS_MPI 0)
if(NEARLIGHT_MPI)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(NEARLIGHT_HAS_MPI 1)
  endif()
endif()
message(STATUS "nearlight: MPI as a peer: ${NEARLIGHT_HAS_MPI}")
