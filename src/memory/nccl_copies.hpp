// The copies of NCCL in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace nearlight::memory {

struct NcclCopy {
  std::string path;
  std::shared_ptr<void> library;  // of dlopen
};

// What stands in front of NCCL in a process and has its names (the drop-in) defines this symbol, too, and is
// no copy.
inline constexpr const char* kDropInMark = "nearlightDropIn";

// Every object that itself defines the function that makes communicators: libnccl, or a program or library
// that contains it. In the order in which they were loaded.
std::vector<NcclCopy> loaded_nccl_copies();

// The path without links, or as it is where it leads nowhere.
std::string real_path(const std::string& path);

}  // namespace nearlight::memory
