// NCCL through a table of pointers, never linked. No header of NCCL is needed to use it: data types and
// operators are NCCL's numbers, streams are cudaStream_t as void*.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"

struct ncclComm;
struct ncclWindow_vidmem;

namespace nearlight::memory {

struct NcclUniqueId {
  char bytes[128];
};

// Ranks rank 0, stride, 2 * stride, ... of the communicator, of which this one is the `rank`th.
struct NcclTeam {
  int nranks;
  int rank;
  int stride;
};

// 22809 is "2.28.9".
std::string nccl_version_text(int version);

// One copy of NCCL in this process. Every call whose symbol this copy lacks returns Code::unsupported; every
// failure names the call, NCCL's own texts, the version and the file. A communicator created as non-blocking
// makes calls return Code::in_progress: ask comm_async_error until it is no longer that.
class Nccl {
 public:
  // The copy that is in the process already, else the file named by NEARLIGHT_NCCL_LIB, else libnccl.so.2 as
  // the system finds it. With several copies in the process NEARLIGHT_NCCL_LIB says which. Tables are made
  // once a file and live for ever.
  static Result<const Nccl*> find();
  // The same for a communicator that somebody else created: only what is in the process already can own it.
  static Result<const Nccl*> attached();
  // From here on both give this copy, whatever else is loaded: for who knows which copy makes the
  // communicators. `library`: of dlopen, never closed. Once, before anything else of this class is used.
  static Status pin(void* library, const std::string& path);

  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& path() const { return path_; }
  int version() const { return version_; }  // as in NCCL_VERSION_CODE: 22809 is 2.28.9
  std::string name() const;                 // "NCCL 2.28.9"
  // "NCCL 2.28.9 (/path/of/libnccl.so.2)"
  std::string describe() const;

  Result<NcclUniqueId> get_unique_id() const;
  // Collective over the ranks with one id; the current device becomes the rank's.
  Result<ncclComm*> comm_init_rank(int nranks, const NcclUniqueId& id, int rank) const;
  // Returns Code::ok or Code::in_progress, with *comm set.
  Status comm_init_rank_nonblocking(int nranks, const NcclUniqueId& id, int rank, ncclComm** comm) const;
  Result<std::vector<ncclComm*>> comm_init_all(const std::vector<int>& devices) const;
  Status comm_destroy(ncclComm* comm) const;
  Status comm_abort(ncclComm* comm) const;
  Result<int> comm_count(ncclComm* comm) const;
  Result<int> comm_rank(ncclComm* comm) const;
  Result<int> comm_device(ncclComm* comm) const;
  // What has happened to the communicator since: ok, in_progress, or the failure.
  Status comm_async_error(ncclComm* comm) const;

  Status all_reduce(const void* send, void* recv, std::size_t count, int type, int op, ncclComm* comm,
                    void* stream) const;
  Status all_gather(const void* send, void* recv, std::size_t send_count, int type, ncclComm* comm,
                    void* stream) const;
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, int type, int op,
                        ncclComm* comm, void* stream) const;
  Status reduce(const void* send, void* recv, std::size_t count, int type, int op, int root, ncclComm* comm,
                void* stream) const;
  // To and from all of `nranks`, in one group of sends and receives: any version has those. `count` elements
  // of `element` bytes.
  Status all_to_all(const void* send, void* recv, std::size_t count, int type, std::size_t element,
                    int nranks, ncclComm* comm, void* stream) const;
  Status send(const void* send, std::size_t count, int type, int peer, ncclComm* comm, void* stream) const;
  Status recv(void* recv, std::size_t count, int type, int peer, ncclComm* comm, void* stream) const;
  Status broadcast(const void* send, void* recv, std::size_t count, int type, int root, ncclComm* comm,
                   void* stream) const;
  Status group_start() const;
  Status group_end() const;

  Result<void*> mem_alloc(std::size_t bytes) const;
  Status mem_free(void* pointer) const;
  // Collective. The window is symmetric: every rank registers the same number of bytes at the same offset of
  // an allocation. *window stays null where NCCL has no symmetric memory for this communicator, although the
  // call succeeds.
  Status window_register(ncclComm* comm, void* pointer, std::size_t bytes, ncclWindow_vidmem** window) const;
  Status window_deregister(ncclComm* comm, ncclWindow_vidmem* window) const;
  // The ranks whose memory this one can load and store. Valid after a window was registered.
  Result<NcclTeam> lsa_team(ncclComm* comm) const;

 private:
  struct Table;
  friend struct NcclLoader;
  Nccl(std::string path, int version, std::shared_ptr<void> library, std::unique_ptr<Table> table);

  Status missing(const char* symbol) const;
  Status outcome(int result, const char* call, ncclComm* comm = nullptr) const;

  std::string path_;
  int version_;
  std::shared_ptr<void> library_;
  std::unique_ptr<Table> table_;
};

}  // namespace nearlight::memory
