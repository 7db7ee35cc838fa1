// Where a process lives, as far as other processes must know it to meet it there.
#pragma once

#include <cstdint>

namespace nearlight {

// What cannot be found out stays empty and equals nothing. Trivially copyable, so that ranks can send it.
struct HostPlace {
  char boot[40] = {};  // of the running kernel
  std::uint64_t pid_namespace = 0, network_namespace = 0;
  std::int64_t pid = 0;
  std::uint32_t user = 0;  // effective
  std::uint32_t unused = 0;

  // Whether it could be found out where the process is.
  bool is_known() const;
  // Whether two processes mean the same process by the same number.
  bool same_numbers(const HostPlace& other) const;
  // Whether, beyond that, they find each other's sockets in the abstract namespace and trust each other.
  bool can_meet(const HostPlace& other) const;
};

HostPlace this_host_place();

}  // namespace nearlight
