#include "dropin/real_nccl.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "base/variables.hpp"
#include "dropin/last_error.hpp"
#include "memory/nccl_copies.hpp"

// What tells the drop-in from a copy of NCCL: see memory::kDropInMark.
extern "C" [[gnu::visibility("default")]] const int nearlightDropIn = 1;

namespace nearlight::dropin {

namespace {

using memory::NcclCopy;

// Never destroyed: calls may come late in the process's life.
struct Found {
  RealNccl nccl;
  std::shared_ptr<void> library;
  Status status;
};

std::atomic<const RealNccl*> found_nccl{nullptr};

std::string text_of_dlerror() {
  const char* const text = ::dlerror();
  return text != nullptr ? text : "unknown error";
}

Result<NcclCopy> open(const std::string& name, const char* by) {
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return failure(Code::unsupported, "cannot load NCCL%s: %s", by, text_of_dlerror().c_str());
  return NcclCopy{name, {handle, [](void* library) { ::dlclose(library); }}};
}

Result<NcclCopy> choose() {
  if (const auto wanted = variables::read(variables::kNcclLib)) return open(*wanted, " (NEARLIGHT_NCCL_LIB)");
  const std::vector<NcclCopy> copies = memory::loaded_nccl_copies();
  if (copies.empty()) return open("libnccl.so.2", "");
  // What a program that is linked to NCCL would have called.
  if (const void* const next = ::dlsym(RTLD_NEXT, "ncclGetVersion"); next != nullptr) {
    for (const NcclCopy& copy : copies) {
      if (::dlsym(copy.library.get(), "ncclGetVersion") == next) return copy;
    }
  }
  return copies[0];
}

void find_extent(RealNccl& nccl) {
  const auto look = [](dl_phdr_info* object, std::size_t, void* data) {
    auto& found = *static_cast<RealNccl*>(data);
    const auto inside = reinterpret_cast<std::uintptr_t>(found.ncclGetVersion);
    std::uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      begin = std::min<std::uintptr_t>(begin, object->dlpi_addr + segment.p_vaddr);
      end = std::max<std::uintptr_t>(end, object->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    }
    if (inside < begin || inside >= end) return 0;
    found.begin = begin;
    found.end = end;
    return 1;
  };
  static_cast<void>(::dl_iterate_phdr(look, &nccl));
}

Status fill(const NcclCopy& copy, RealNccl& nccl) {
  nccl.library = copy.library.get();
  if (::dlsym(nccl.library, memory::kDropInMark) == &nearlightDropIn) {
    return failure(Code::invalid_usage, "%s is the drop-in itself, not the NCCL that it stands in front of",
                   copy.path.c_str());
  }
#define NL_FORWARDED(type, name, parameters, names) \
  nccl.name = reinterpret_cast<decltype(nccl.name)>(::dlsym(nccl.library, #name));
#define NL_INTERCEPTED NL_FORWARDED
#include "dropin/nccl_functions.def"
#undef NL_INTERCEPTED
#undef NL_FORWARDED
  if (nccl.ncclGetVersion == nullptr || nccl.ncclGetVersion(&nccl.version) != ncclSuccess)
    return failure(Code::unsupported, "%s is no NCCL: it does not tell its version", copy.path.c_str());
  Dl_info info{};
  nccl.path = copy.path;
  if (::dladdr(reinterpret_cast<const void*>(nccl.ncclGetVersion), &info) != 0 && info.dli_fname != nullptr)
    nccl.path = info.dli_fname;
  find_extent(nccl);
  return {};
}

Found& find_once() {
  static Found& found = *[] {
    auto* const fresh = new Found;
    auto copy = choose();
    fresh->status = copy.status();
    if (copy.ok()) {
      fresh->library = copy->library;
      fresh->status = fill(*copy, fresh->nccl);
    }
    if (fresh->status.ok()) {
      found_nccl.store(&fresh->nccl, std::memory_order_release);  // pairs with the load in real_nccl()
    } else {
      log::warn("the drop-in for NCCL has no NCCL to stand in front of: " + fresh->status.text());
    }
    return fresh;
  }();
  return found;
}

}  // namespace

const RealNccl* real_nccl() {
  const RealNccl* const known = found_nccl.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  static_cast<void>(find_once());
  return found_nccl.load(std::memory_order_acquire);
}

int& InsideNccl::depth() {
  static constinit thread_local int of_thread = 0;
  return of_thread;
}

bool called_by_nccl(const RealNccl& nccl, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= nccl.begin && at < nccl.end;
}

const char* text_without_nccl() { return find_once().status.text().c_str(); }

std::string report_copies() {
  const RealNccl* const nccl = real_nccl();
  const std::vector<NcclCopy> copies = memory::loaded_nccl_copies();
  if (nccl == nullptr || copies.size() < 2) return "";
  std::string text = std::to_string(copies.size()) + " copies of NCCL are in this process:";
  for (const NcclCopy& copy : copies) text += " " + copy.path;
  text += "; all calls go to " + nccl->path + " (NEARLIGHT_NCCL_LIB says which)";
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) log::warn(text);
  return text;
}

ncclResult_t missing(const char* name) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr) {
    return failed(failure(Code::system_error, "%s: %s", name, text_without_nccl()));
  }
  Status status = failure(Code::invalid_usage, "%s (version code %d) has no function %s", nccl->path.c_str(),
                          nccl->version, name);
  static std::mutex mutex;
  static auto& told = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (told.insert(name).second) log::warn(status.text());
  }
  return failed(status);
}

}  // namespace nearlight::dropin
