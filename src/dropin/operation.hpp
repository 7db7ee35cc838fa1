// One call of a program to a collective of NCCL, and what becomes of it.
#pragma once

#include <cstddef>

#include "base/types.hpp"

struct ncclComm;

namespace nearlight::dropin {

// In the order of kFunctionNames.
enum class Function : int {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
};
inline constexpr const char* kFunctionNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                                 "Reduce",    "AlltoAll",  "Gather",        "Scatter",
                                                 "Send",      "Recv"};
inline constexpr int kFunctions = sizeof kFunctionNames / sizeof kFunctionNames[0];
inline const char* name_of(Function function) { return kFunctionNames[static_cast<int>(function)]; }

// NCCL's arguments under NCCL's names; numbers are as the program gave them, and may be none of NCCL's.
struct Operation {
  Function function = Function::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // of sendbuff's part or recvbuff's, as the function has it
  int type = 0;
  int op = 0;     // ncclRedOp_t, of those that reduce
  int root = -1;  // or the peer
  ncclComm* comm = nullptr;
  void* stream = nullptr;  // cudaStream_t

  std::size_t bytes() const { return count * size_of(static_cast<DataType>(type)); }
  // To, or from, one other rank, and not a collective.
  bool is_message() const { return function == Function::send || function == Function::recv; }
};

// Whether nearlight takes a call, and why it does or does not. Nothing else decides, and the statistics print
// this reason. Made only from what is the same on all ranks: function, count, type, operator, and what the
// ranks agreed on about the communicator. Never from addresses or streams.
struct Verdict {
  bool taken = false;
  const char* reason = "";  // lives as long as the process
};

// The same text, once in the process, for ever.
const char* for_ever(const char* text);

}  // namespace nearlight::dropin
