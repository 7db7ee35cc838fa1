#include "bootstrap/known_ranks.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "base/host_place.hpp"
#include "bootstrap/process_group.hpp"

namespace nearlight::bootstrap {

namespace {

// What each rank tells the others. The key is rank 0's.
struct Introduction {
  HostPlace place = this_host_place();
  std::uint64_t key[2] = {};
};

Status draw_key(Introduction& mine) {
  const ssize_t drawn = ::getrandom(mine.key, sizeof mine.key, 0);
  if (drawn < 0) return system_failure("getrandom", errno);
  if (drawn != sizeof mine.key) return failure(Code::system_error, "getrandom: only %zd bytes", drawn);
  return {};
}

Status check_can_meet(const std::vector<Introduction>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[0].place.can_meet(all[rank].place)) continue;
    return failure(Code::unsupported,
                   "rank 0 and rank %zu are not processes of one user on one host in one container%s", rank,
                   all[0].place.is_known() && all[rank].place.is_known() ? "" : ", as far as can be told");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Exchange>> meet_known_ranks(Exchange& known, Deadline deadline) {
  Introduction mine;
  // Only rank 0's is needed; whether it came to be is told to all before anybody waits for it elsewhere.
  NL_TRY(agree(known, known.rank() == 0 ? draw_key(mine) : Status(), deadline));
  NL_TRY_ASSIGN(const auto all, gather_values(known, mine, deadline));
  NL_TRY(check_can_meet(all));
  char key[64];
  std::snprintf(key, sizeof key, "known-%016" PRIx64 "%016" PRIx64, all[0].key[0], all[0].key[1]);
  // A rank that cannot meet knows it at once and the others only when their time is over, which must leave
  // them enough to hear of it.
  auto met = join_process_group({known.rank(), known.nranks(), key}, Deadline::after(deadline.left() / 2));
  NL_TRY(agree(known, met.status(), deadline));
  return met;
}

}  // namespace nearlight::bootstrap
