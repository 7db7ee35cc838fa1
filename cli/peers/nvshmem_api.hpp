// NVSHMEM's host library as a table of pointers: what is measured is the copy that is installed, and nothing
// of it is compiled in.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/types.hpp"

namespace nearlight::peers {

// The structures of its first init interface, which later versions still take. `version` is 65536 + the size.
struct NvshmemId {
  int version = 0x10000 + 128;
  char internal[124] = {};
};
struct NvshmemInitArgs {
  int version = 0x10000 + 128;
  struct {
    int version = 0x10000 + 24;
    NvshmemId* id = nullptr;
    int rank = -1, nranks = -1;
  } id_args;
  char content[96] = {};
};
struct NvshmemInitAttributes {
  int version = 0x10000 + 144;
  void* mpi_comm = nullptr;
  NvshmemInitArgs args;
};
static_assert(sizeof(NvshmemId) == 128 && sizeof(NvshmemInitArgs) == 128 &&
              sizeof(NvshmemInitAttributes) == 144);

inline constexpr unsigned kNvshmemInitById = 1u << 3;
inline constexpr std::int32_t kNvshmemWorld = 0;  // the team of all

// (team, dest, source, count, stream); the elements' type is in the symbol's name.
using NvshmemReduce = int (*)(std::int32_t, void*, const void*, std::size_t, void*);

struct NvshmemApi {
  std::shared_ptr<void> library;  // of dlopen
  std::string version;            // "3.4.5"
  int (*get_uniqueid)(NvshmemId*) = nullptr;
  int (*set_attr_uniqueid_args)(int, int, const NvshmemId*, NvshmemInitAttributes*) = nullptr;
  int (*hostlib_init_attr)(unsigned, NvshmemInitAttributes*) = nullptr;
  void (*hostlib_finalize)() = nullptr;
  void* (*malloc)(std::size_t) = nullptr;

  // Null where it has no such reduction.
  NvshmemReduce reduce(DataType type, ReduceOp op) const;
};

// "nvshmemx_bfloat16_sum_reduce_on_stream"; "" where NVSHMEM has nothing of the kind.
std::string nvshmem_symbol(DataType type, ReduceOp op);

// `name`: for dlopen. Code::unsupported, saying what is missing.
Result<NvshmemApi> load_nvshmem(const char* name = "libnvshmem_host.so.3");

}  // namespace nearlight::peers
