#include "memory/nccl_api.hpp"

#include <dlfcn.h>
#include <nccl.h>
#include <nccl_device/core.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/variables.hpp"
#include "memory/nccl_copies.hpp"

namespace nearlight::memory {

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

// NL_NCCL(member, symbol)
#define NL_NCCL_SYMBOLS(NL_NCCL)                         \
  NL_NCCL(get_error_string, ncclGetErrorString)          \
  NL_NCCL(get_last_error, ncclGetLastError)              \
  NL_NCCL(get_unique_id, ncclGetUniqueId)                \
  NL_NCCL(comm_init_rank, ncclCommInitRank)              \
  NL_NCCL(comm_init_rank_config, ncclCommInitRankConfig) \
  NL_NCCL(comm_init_all, ncclCommInitAll)                \
  NL_NCCL(comm_destroy, ncclCommDestroy)                 \
  NL_NCCL(comm_abort, ncclCommAbort)                     \
  NL_NCCL(comm_count, ncclCommCount)                     \
  NL_NCCL(comm_user_rank, ncclCommUserRank)              \
  NL_NCCL(comm_cu_device, ncclCommCuDevice)              \
  NL_NCCL(comm_get_async_error, ncclCommGetAsyncError)   \
  NL_NCCL(all_reduce, ncclAllReduce)                     \
  NL_NCCL(all_gather, ncclAllGather)                     \
  NL_NCCL(broadcast, ncclBroadcast)                      \
  NL_NCCL(reduce_scatter, ncclReduceScatter)             \
  NL_NCCL(reduce, ncclReduce)                            \
  NL_NCCL(send, ncclSend)                                \
  NL_NCCL(recv, ncclRecv)                                \
  NL_NCCL(group_start, ncclGroupStart)                   \
  NL_NCCL(group_end, ncclGroupEnd)                       \
  NL_NCCL(mem_alloc, ncclMemAlloc)                       \
  NL_NCCL(mem_free, ncclMemFree)                         \
  NL_NCCL(window_register, ncclCommWindowRegister)       \
  NL_NCCL(window_deregister, ncclCommWindowDeregister)

// Null where this copy of NCCL has no such symbol.
struct Nccl::Table {
#define NL_NCCL(member, symbol) decltype(&::symbol) member = nullptr;
  NL_NCCL_SYMBOLS(NL_NCCL)
#undef NL_NCCL
  ncclTeam_t (*team_lsa)(ncclComm_t) = nullptr;  // overloaded in the header
};

std::string nccl_version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

// Finds and opens copies; the tables are cached by the address of their ncclGetVersion.
struct NcclLoader {
  using Copy = NcclCopy;

  static std::shared_ptr<void> own(void* handle) {
    return {handle, [](void* library) { ::dlclose(library); }};
  }

  // The one among several that NEARLIGHT_NCCL_LIB names.
  static Result<Copy> choose(const std::vector<Copy>& copies) {
    if (copies.size() == 1) return copies[0];
    const std::optional<std::string> wanted = variables::read(variables::kNcclLib);
    std::string list;
    for (const Copy& copy : copies) {
      if (wanted && real_path(copy.path) == real_path(*wanted)) return copy;
      list += (list.empty() ? "" : ", ") + copy.path;
    }
    return failure(
        Code::invalid_usage,
        "several copies of NCCL are loaded (%s) and NEARLIGHT_NCCL_LIB, which must say which to use, is %s",
        list.c_str(), wanted ? wanted->c_str() : "not set");
  }

  static Result<Copy> open() {
    const std::optional<std::string> chosen = variables::read(variables::kNcclLib);
    const std::string name = chosen.value_or("libnccl.so.2");
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return Copy{name, own(handle)};
    const char* const why = ::dlerror();
    return failure(Code::unsupported, "cannot load NCCL%s: %s", chosen ? " from NEARLIGHT_NCCL_LIB" : "",
                   why != nullptr ? why : name.c_str());
  }

  static Result<const Nccl*> table_of(const Copy& copy) {
    // Never destroyed, so that code and tables are there for whatever is destroyed late in the process.
    static std::mutex mutex;
    static auto& tables = *new std::map<const void*, std::unique_ptr<Nccl>>;
    void* const library = copy.library.get();
    const auto get_version =
        reinterpret_cast<decltype(&::ncclGetVersion)>(::dlsym(library, "ncclGetVersion"));
    if (get_version == nullptr) {
      return failure(Code::unsupported, "%s has no symbol ncclGetVersion: it is no NCCL", copy.path.c_str());
    }
    const std::lock_guard lock(mutex);
    std::unique_ptr<Nccl>& entry = tables[reinterpret_cast<const void*>(get_version)];
    if (entry == nullptr) {
      int version = 0;
      if (get_version(&version) != ncclSuccess || version <= 0) {
        return failure(Code::unsupported, "ncclGetVersion of %s fails", copy.path.c_str());
      }
      Dl_info info{};
      std::string path = copy.path;
      if (::dladdr(reinterpret_cast<const void*>(get_version), &info) != 0 && info.dli_fname != nullptr) {
        path = info.dli_fname;
      }
      auto table = std::make_unique<Nccl::Table>();
#define NL_NCCL(member, symbol) \
  table->member = reinterpret_cast<decltype(table->member)>(::dlsym(library, #symbol));
      NL_NCCL_SYMBOLS(NL_NCCL)
#undef NL_NCCL
      table->team_lsa = reinterpret_cast<decltype(table->team_lsa)>(::dlsym(library, "ncclTeamLsa"));
      entry.reset(new Nccl(std::move(path), version, copy.library, std::move(table)));
    }
    return entry.get();
  }

  static const Nccl*& pinned() {
    static const Nccl* nccl = nullptr;
    return nccl;
  }

  static Result<const Nccl*> find(bool may_open) {
    if (pinned() != nullptr) return pinned();
    const std::vector<Copy> copies = loaded_nccl_copies();
    if (copies.empty() && !may_open) {
      return failure(
          Code::invalid_usage,
          "no NCCL is loaded in this process (or it is linked in with hidden symbols), so there is no "
          "communicator to attach to");
    }
    NL_TRY_ASSIGN(const Copy copy, copies.empty() ? open() : choose(copies));
    return table_of(copy);
  }
};

Result<const Nccl*> Nccl::find() { return NcclLoader::find(true); }
Result<const Nccl*> Nccl::attached() { return NcclLoader::find(false); }

Status Nccl::pin(void* library, const std::string& path) {
  // Not closed at the end: the library is the caller's.
  NL_TRY_ASSIGN(NcclLoader::pinned(), NcclLoader::table_of({path, {library, [](void*) {}}}));
  return {};
}

Nccl::Nccl(std::string path, int version, std::shared_ptr<void> library, std::unique_ptr<Table> table)
    : path_(std::move(path)), version_(version), library_(std::move(library)), table_(std::move(table)) {}
Nccl::~Nccl() = default;

std::string Nccl::name() const { return "NCCL " + nccl_version_text(version_); }
std::string Nccl::describe() const { return name() + " (" + path_ + ")"; }

Status Nccl::missing(const char* symbol) const {
  return failure(Code::unsupported, "%s has no symbol %s", describe().c_str(), symbol);
}

Status Nccl::outcome(int result, const char* call, ncclComm* comm) const {
  if (result == ncclSuccess) return {};
  const char* text =
      table_->get_error_string != nullptr ? table_->get_error_string(static_cast<ncclResult_t>(result)) : "";
  const char* last = table_->get_last_error != nullptr ? table_->get_last_error(comm) : "";
  if (last == nullptr) last = "";
  // NCCL's numbers 1..7 are ours.
  const Code code = result >= 1 && result <= 7 ? static_cast<Code>(result) : Code::internal_error;
  return failure(code, "%s: %s%s%s [%s]", call, text, *last != '\0' ? ": " : "", last, describe().c_str());
}

// Calls through the table, or says what is missing.
#define NL_CALL(member, symbol, comm, ...)      \
  (table_->member == nullptr ? missing(#symbol) \
                             : outcome(static_cast<int>(table_->member(__VA_ARGS__)), #symbol, comm))

Result<NcclUniqueId> Nccl::get_unique_id() const {
  ncclUniqueId id;
  NL_TRY(NL_CALL(get_unique_id, ncclGetUniqueId, nullptr, &id));
  NcclUniqueId copy;
  std::memcpy(copy.bytes, id.internal, sizeof copy.bytes);
  return copy;
}

namespace {
ncclUniqueId to_nccl(const NcclUniqueId& id) {
  ncclUniqueId copy;
  std::memcpy(copy.internal, id.bytes, sizeof copy.internal);
  return copy;
}
}  // namespace

Result<ncclComm*> Nccl::comm_init_rank(int nranks, const NcclUniqueId& id, int rank) const {
  ncclComm* comm = nullptr;
  NL_TRY(NL_CALL(comm_init_rank, ncclCommInitRank, nullptr, &comm, nranks, to_nccl(id), rank));
  return comm;
}

Status Nccl::comm_init_rank_nonblocking(int nranks, const NcclUniqueId& id, int rank, ncclComm** comm) const {
  *comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return NL_CALL(comm_init_rank_config, ncclCommInitRankConfig, nullptr, comm, nranks, to_nccl(id), rank,
                 &config);
}

Result<std::vector<ncclComm*>> Nccl::comm_init_all(const std::vector<int>& devices) const {
  std::vector<ncclComm*> comms(devices.size(), nullptr);
  NL_TRY(NL_CALL(comm_init_all, ncclCommInitAll, nullptr, comms.data(), static_cast<int>(devices.size()),
                 devices.data()));
  return comms;
}

// The communicator is gone after these, so it cannot be asked for its last error.
Status Nccl::comm_destroy(ncclComm* comm) const {
  return NL_CALL(comm_destroy, ncclCommDestroy, nullptr, comm);
}
Status Nccl::comm_abort(ncclComm* comm) const { return NL_CALL(comm_abort, ncclCommAbort, nullptr, comm); }

Result<int> Nccl::comm_count(ncclComm* comm) const {
  int value = 0;
  NL_TRY(NL_CALL(comm_count, ncclCommCount, comm, comm, &value));
  return value;
}

Result<int> Nccl::comm_rank(ncclComm* comm) const {
  int value = 0;
  NL_TRY(NL_CALL(comm_user_rank, ncclCommUserRank, comm, comm, &value));
  return value;
}

Result<int> Nccl::comm_device(ncclComm* comm) const {
  int value = 0;
  NL_TRY(NL_CALL(comm_cu_device, ncclCommCuDevice, comm, comm, &value));
  return value;
}

Status Nccl::comm_async_error(ncclComm* comm) const {
  ncclResult_t error = ncclSuccess;
  NL_TRY(NL_CALL(comm_get_async_error, ncclCommGetAsyncError, comm, comm, &error));
  return outcome(error, "the communicator", comm);
}

Status Nccl::all_reduce(const void* send, void* recv, std::size_t count, int type, int op, ncclComm* comm,
                        void* stream) const {
  return NL_CALL(all_reduce, ncclAllReduce, comm, send, recv, count, static_cast<ncclDataType_t>(type),
                 static_cast<ncclRedOp_t>(op), comm, static_cast<cudaStream_t>(stream));
}

Status Nccl::all_gather(const void* send, void* recv, std::size_t send_count, int type, ncclComm* comm,
                        void* stream) const {
  return NL_CALL(all_gather, ncclAllGather, comm, send, recv, send_count, static_cast<ncclDataType_t>(type),
                 comm, static_cast<cudaStream_t>(stream));
}

Status Nccl::broadcast(const void* send, void* recv, std::size_t count, int type, int root, ncclComm* comm,
                       void* stream) const {
  return NL_CALL(broadcast, ncclBroadcast, comm, send, recv, count, static_cast<ncclDataType_t>(type), root,
                 comm, static_cast<cudaStream_t>(stream));
}

Status Nccl::reduce_scatter(const void* send, void* recv, std::size_t recv_count, int type, int op,
                            ncclComm* comm, void* stream) const {
  return NL_CALL(reduce_scatter, ncclReduceScatter, comm, send, recv, recv_count,
                 static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op), comm,
                 static_cast<cudaStream_t>(stream));
}

Status Nccl::reduce(const void* send, void* recv, std::size_t count, int type, int op, int root,
                    ncclComm* comm, void* stream) const {
  return NL_CALL(reduce, ncclReduce, comm, send, recv, count, static_cast<ncclDataType_t>(type),
                 static_cast<ncclRedOp_t>(op), root, comm, static_cast<cudaStream_t>(stream));
}

Status Nccl::all_to_all(const void* send, void* recv, std::size_t count, int type, std::size_t element,
                        int nranks, ncclComm* comm, void* stream) const {
  NL_TRY(group_start());
  Status enqueued;
  for (int peer = 0; peer < nranks && enqueued.ok(); ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * count * element;
    enqueued = NL_CALL(send, ncclSend, comm, static_cast<const char*>(send) + at, count,
                       static_cast<ncclDataType_t>(type), peer, comm, static_cast<cudaStream_t>(stream));
    if (!enqueued.ok()) break;
    enqueued = NL_CALL(recv, ncclRecv, comm, static_cast<char*>(recv) + at, count,
                       static_cast<ncclDataType_t>(type), peer, comm, static_cast<cudaStream_t>(stream));
  }
  // The group is ended in any case: else the thread's next call would join it.
  const Status ended = group_end();
  return enqueued.ok() ? ended : enqueued;
}

Status Nccl::send(const void* send, std::size_t count, int type, int peer, ncclComm* comm,
                  void* stream) const {
  return NL_CALL(send, ncclSend, comm, send, count, static_cast<ncclDataType_t>(type), peer, comm,
                 static_cast<cudaStream_t>(stream));
}

Status Nccl::recv(void* recv, std::size_t count, int type, int peer, ncclComm* comm, void* stream) const {
  return NL_CALL(recv, ncclRecv, comm, recv, count, static_cast<ncclDataType_t>(type), peer, comm,
                 static_cast<cudaStream_t>(stream));
}

Status Nccl::group_start() const {
  if (table_->group_start == nullptr) return missing("ncclGroupStart");
  return outcome(table_->group_start(), "ncclGroupStart");
}

Status Nccl::group_end() const {
  if (table_->group_end == nullptr) return missing("ncclGroupEnd");
  return outcome(table_->group_end(), "ncclGroupEnd");
}

Result<void*> Nccl::mem_alloc(std::size_t bytes) const {
  void* pointer = nullptr;
  NL_TRY(NL_CALL(mem_alloc, ncclMemAlloc, nullptr, &pointer, bytes));
  return pointer;
}

Status Nccl::mem_free(void* pointer) const { return NL_CALL(mem_free, ncclMemFree, nullptr, pointer); }

Status Nccl::window_register(ncclComm* comm, void* pointer, std::size_t bytes,
                             ncclWindow_vidmem** window) const {
  *window = nullptr;
  return NL_CALL(window_register, ncclCommWindowRegister, comm, comm, pointer, bytes, window,
                 NCCL_WIN_COLL_SYMMETRIC);
}

Status Nccl::window_deregister(ncclComm* comm, ncclWindow_vidmem* window) const {
  return NL_CALL(window_deregister, ncclCommWindowDeregister, comm, comm, window);
}

Result<NcclTeam> Nccl::lsa_team(ncclComm* comm) const {
  if (table_->team_lsa == nullptr) return missing("ncclTeamLsa");
  const ncclTeam_t team = table_->team_lsa(comm);
  return NcclTeam{.nranks = team.nRanks, .rank = team.rank, .stride = team.stride};
}

}  // namespace nearlight::memory
