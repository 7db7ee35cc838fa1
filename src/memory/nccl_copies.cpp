#include "memory/nccl_copies.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

namespace nearlight::memory {

namespace {

// A file that is mapped into this process.
struct Object {
  std::string path;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const auto& [begin, end] : ranges) {
      if (at >= begin && at < end) return true;
    }
    return false;
  }
};

int collect_object(dl_phdr_info* info, std::size_t, void* list) {
  Object object;
  object.path = info->dlpi_name;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    object.ranges.emplace_back(begin, begin + info->dlpi_phdr[i].p_memsz);
  }
  static_cast<std::vector<Object>*>(list)->push_back(std::move(object));
  return 0;
}

}  // namespace

std::string real_path(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string text(resolved);
  std::free(resolved);
  return text;
}

std::vector<NcclCopy> loaded_nccl_copies() {
  std::vector<Object> objects;
  ::dl_iterate_phdr(collect_object, &objects);
  std::vector<NcclCopy> copies;
  for (const Object& object : objects) {
    const bool program = object.path.empty();
    void* const handle = ::dlopen(program ? nullptr : object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    std::shared_ptr<void> library(handle, [](void* opened) { ::dlclose(opened); });
    // dlsym also looks into what the object depends on; that is found under its own name.
    const void* const address = ::dlsym(handle, "ncclCommInitRank");
    if (address == nullptr || !object.contains(address)) continue;
    const void* const mark = ::dlsym(handle, kDropInMark);
    if (mark != nullptr && object.contains(mark)) continue;
    copies.push_back({program ? "this program" : object.path, std::move(library)});
  }
  return copies;
}

}  // namespace nearlight::memory
