#include "cli/peers/nvshmem_api.hpp"

#include <dlfcn.h>

namespace nearlight::peers {

namespace {

const char* type_in_symbol(DataType type) {
  switch (type) {
    case DataType::i8:
      return "int8";
    case DataType::u8:
      return "uint8";
    case DataType::i32:
      return "int32";
    case DataType::u32:
      return "uint32";
    case DataType::i64:
      return "int64";
    case DataType::u64:
      return "uint64";
    case DataType::f16:
      return "half";
    case DataType::bf16:
      return "bfloat16";
    case DataType::f32:
      return "float";
    case DataType::f64:
      return "double";
    default:
      return nullptr;
  }
}

const char* op_in_symbol(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
    default:
      return nullptr;
  }
}

template <class Function>
Status find(const NvshmemApi& api, const char* name, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(api.library.get(), symbol));
  if (function != nullptr) return {};
  return failure(Code::unsupported, "%s has no %s", name, symbol);
}

}  // namespace

std::string nvshmem_symbol(DataType type, ReduceOp op) {
  const char* const type_name = type_in_symbol(type);
  const char* const op_name = op_in_symbol(op);
  if (type_name == nullptr || op_name == nullptr) return "";
  std::string symbol("nvshmemx_");
  return symbol.append(type_name).append("_").append(op_name).append("_reduce_on_stream");
}

NvshmemReduce NvshmemApi::reduce(DataType type, ReduceOp op) const {
  const std::string symbol = nvshmem_symbol(type, op);
  if (symbol.empty()) return nullptr;
  return reinterpret_cast<NvshmemReduce>(::dlsym(library.get(), symbol.c_str()));
}

Result<NvshmemApi> load_nvshmem(const char* name) {
  NvshmemApi api;
  // Global: what it loads in turn looks for its symbols there.
  void* const handle = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return failure(Code::unsupported, "cannot load NVSHMEM: %s", why != nullptr ? why : name);
  }
  // Never closed: its threads may still run when a benchmark breaks off.
  api.library = std::shared_ptr<void>(handle, [](void*) {});
  NL_TRY(find(api, name, "nvshmemx_get_uniqueid", api.get_uniqueid));
  NL_TRY(find(api, name, "nvshmemx_set_attr_uniqueid_args", api.set_attr_uniqueid_args));
  NL_TRY(find(api, name, "nvshmemx_hostlib_init_attr", api.hostlib_init_attr));
  NL_TRY(find(api, name, "nvshmemx_hostlib_finalize", api.hostlib_finalize));
  NL_TRY(find(api, name, "nvshmem_malloc", api.malloc));
  void (*vendor_version)(int*, int*, int*) = nullptr;
  if (find(api, name, "nvshmemx_vendor_get_version_info", vendor_version).ok()) {
    int major = 0, minor = 0, patch = 0;
    vendor_version(&major, &minor, &patch);
    api.version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  }
  return api;
}

}  // namespace nearlight::peers
