// NCCL's collectives, and its sends and receives: each tells what it is called with, and how to pass it on.
#include "dropin/intercept.hpp"

using namespace nearlight::dropin;  // NOLINT: the entry points below are NCCL's

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return intercept(
      __func__, &RealNccl::ncclAllReduce,
      {Function::all_reduce, sendbuff, recvbuff, count, datatype, static_cast<int>(op), -1, comm, stream},
      [&](auto real) { return real(sendbuff, recvbuff, count, datatype, op, comm, stream); });
}
NL_SECOND_NAME(ncclAllReduce);

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclAllGather,
                   {Function::all_gather, sendbuff, recvbuff, sendcount, datatype, 0, -1, comm, stream},
                   [&](auto real) { return real(sendbuff, recvbuff, sendcount, datatype, comm, stream); });
}
NL_SECOND_NAME(ncclAllGather);

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return intercept(
      __func__, &RealNccl::ncclReduceScatter,
      {Function::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, static_cast<int>(op), -1, comm,
       stream},
      [&](auto real) { return real(sendbuff, recvbuff, recvcount, datatype, op, comm, stream); });
}
NL_SECOND_NAME(ncclReduceScatter);

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclBroadcast,
                   {Function::broadcast, sendbuff, recvbuff, count, datatype, 0, root, comm, stream},
                   [&](auto real) { return real(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}
NL_SECOND_NAME(ncclBroadcast);

// NCCL's own would call ncclBroadcast by its name, and so come here again.
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclBroadcast,
                   {Function::broadcast, buff, buff, count, datatype, 0, root, comm, stream},
                   [&](auto real) { return real(buff, buff, count, datatype, root, comm, stream); });
}
NL_SECOND_NAME(ncclBcast);

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return intercept(
      __func__, &RealNccl::ncclReduce,
      {Function::reduce, sendbuff, recvbuff, count, datatype, static_cast<int>(op), root, comm, stream},
      [&](auto real) { return real(sendbuff, recvbuff, count, datatype, op, root, comm, stream); });
}
NL_SECOND_NAME(ncclReduce);

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclAlltoAll,
                   {Function::all_to_all, sendbuff, recvbuff, count, datatype, 0, -1, comm, stream},
                   [&](auto real) { return real(sendbuff, recvbuff, count, datatype, comm, stream); });
}
NL_SECOND_NAME(ncclAlltoAll);

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclGather,
                   {Function::gather, sendbuff, recvbuff, count, datatype, 0, root, comm, stream},
                   [&](auto real) { return real(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}
NL_SECOND_NAME(ncclGather);

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclScatter,
                   {Function::scatter, sendbuff, recvbuff, count, datatype, 0, root, comm, stream},
                   [&](auto real) { return real(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}
NL_SECOND_NAME(ncclScatter);

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclSend,
                   {Function::send, sendbuff, nullptr, count, datatype, 0, peer, comm, stream},
                   [&](auto real) { return real(sendbuff, count, datatype, peer, comm, stream); });
}
NL_SECOND_NAME(ncclSend);

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return intercept(__func__, &RealNccl::ncclRecv,
                   {Function::recv, nullptr, recvbuff, count, datatype, 0, peer, comm, stream},
                   [&](auto real) { return real(recvbuff, count, datatype, peer, comm, stream); });
}
NL_SECOND_NAME(ncclRecv);
