// The functions of nccl.h that the drop-in only passes on, made from its declarations. Each costs a load and
// a jump.
#include "dropin/real_nccl.hpp"

namespace nearlight::dropin {
namespace {

// What a function returns where there is nobody to pass it on to.
template <class T>
T without(const char* name) {
  const ncclResult_t result = missing(name);
  if constexpr (std::is_same_v<T, ncclResult_t>) return result;
  if constexpr (std::is_same_v<T, const char*>) return "the NCCL behind nearlight's drop-in does not tell";
}

}  // namespace
}  // namespace nearlight::dropin

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define NL_INTERCEPTED(type, name, parameters, names)
#define NL_FORWARDED(type, name, parameters, names)                                               \
  extern "C" type name parameters {                                                               \
    const nearlight::dropin::RealNccl* const nccl = nearlight::dropin::real_nccl();               \
    if (nccl == nullptr || nccl->name == nullptr) return nearlight::dropin::without<type>(#name); \
    return nccl->name names;                                                                      \
  }                                                                                               \
  NL_SECOND_NAME(name);
#include "dropin/nccl_functions.def"
