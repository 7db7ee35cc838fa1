// NCCL's functions for a program that is not linked to it: whoever is preloaded has them, as where a program
// is linked. So the program can be carried to another machine and lists its tests without NCCL.
#pragma once

#include <nccl.h>

#pragma weak ncclGetUniqueId
#pragma weak ncclGetErrorString
#pragma weak ncclGetLastError
#pragma weak ncclCommInitRank
#pragma weak ncclCommInitRankConfig
#pragma weak ncclCommInitAll
#pragma weak ncclCommSplit
#pragma weak ncclCommFinalize
#pragma weak ncclCommDestroy
#pragma weak ncclCommAbort
#pragma weak ncclCommGetAsyncError
#pragma weak ncclGroupStart
#pragma weak ncclGroupEnd
#pragma weak ncclAllReduce
#pragma weak ncclAllGather
#pragma weak ncclBroadcast
#pragma weak ncclReduceScatter
#pragma weak ncclReduce
#pragma weak ncclAlltoAll
#pragma weak ncclSend
#pragma weak ncclRecv
#pragma weak ncclRedOpCreatePreMulSum
#pragma weak ncclRedOpDestroy
