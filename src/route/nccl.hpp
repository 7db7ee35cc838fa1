// What can be handed to NCCL: what it has, without the combinations in which it is wrong. By facts that are
// equal on all ranks, as a rank that went there alone would wait for the others for ever.
#pragma once

#include <cstddef>
#include <string>

#include "base/types.hpp"

namespace nearlight::route {

// The NCCL that a communicator is attached to.
struct AttachedNccl {
  int version = 0;     // as NCCL_VERSION_CODE, 22809 is 2.28.9; 0: none, and nothing is handed over
  int capability = 0;  // compute capability of the group's oldest GPU: 90 is 9.0
};

// 2.28.3 to 2.29.7 add types of 1 and 2 bytes wrongly where a buffer of a symmetric window does not begin at
// a multiple of 4, in messages of up to about 69 KiB. An address is one rank's own, so none of these types is
// handed over below the limit, whatever its address.
inline constexpr std::size_t kFirstSafeBytes = 128 * 1024;
bool adds_small_types_wrongly(int version);

// 2.28.0 to 2.30.6: kernels on symmetric windows begin before the kernel in front of them has ended, where
// that one allows it, and do not wait for its results. Ours allow it.
bool starts_before_its_input(int version);

// Why nearlight keeps a call, in words for the reason of its route (static storage); null: NCCL can have it.
const char* kept_from_nccl(const AttachedNccl& nccl, DataType type, ReduceOp op, std::size_t bytes);

// The same where every call is to go there, and nearlight makes what NCCL has not of what it has: only what
// cannot be made so.
const char* never_by_nccl(const AttachedNccl& nccl, DataType type);
// Whether such a call must not have the caller's addresses but an aligned buffer outside all windows.
bool needs_own_buffer(const AttachedNccl& nccl, DataType type, std::size_t bytes);

// What is said of a version in `nearlight info`; "" for one without known faults.
std::string faults_of_nccl(int version);

}  // namespace nearlight::route
