#include "base/host_place.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace nearlight {

namespace {

std::uint64_t inode_of(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

bool HostPlace::is_known() const { return boot[0] != '\0' && pid_namespace != 0 && network_namespace != 0; }

bool HostPlace::same_numbers(const HostPlace& other) const {
  return boot[0] != '\0' && std::memcmp(boot, other.boot, sizeof boot) == 0 && pid_namespace != 0 &&
         pid_namespace == other.pid_namespace;
}

bool HostPlace::can_meet(const HostPlace& other) const {
  return same_numbers(other) && network_namespace != 0 && network_namespace == other.network_namespace &&
         user == other.user;
}

HostPlace this_host_place() {
  HostPlace place;
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "r"); file != nullptr) {
    if (std::fgets(place.boot, sizeof place.boot, file) == nullptr) place.boot[0] = '\0';
    static_cast<void>(std::fclose(file));
  }
  place.pid_namespace = inode_of("/proc/self/ns/pid");
  place.network_namespace = inode_of("/proc/self/ns/net");
  place.pid = ::getpid();
  place.user = ::geteuid();
  return place;
}

}  // namespace nearlight
