// What rung 2 is about: a payload that lies beside its flag must be published by a release, and read after an
// acquire. kBroken: it is told by a message of LL instead, which orders nothing but itself. On a CPU it works
// all the same, on a GPU nearly always: only the memory-model checker sees it every time.
#pragma once

#include <cstdint>

namespace ladder {

// `puts`: a channel of Simple, `flags`: one of LL. Rank 0 gives `value` to rank 1, which returns what it has
// got; rank 0 returns `value`.
template <bool kBroken, class Puts, class Flags>
std::uint64_t give(Puts& puts, Flags& flags, std::uint64_t value) {
  std::uint64_t got = value;
  if (puts.rank() == 0) {
    puts.put(1, 0, {{value, 0}});
    kBroken ? flags.send(1, 0, 1) : puts.signal(1);
  } else {
    int flag = 0;
    kBroken ? flags.recv(0, 0, flag) : puts.wait_signal(0);
    got = puts.get(0, 0).pack[0];
  }
  return got;
}

}  // namespace ladder
