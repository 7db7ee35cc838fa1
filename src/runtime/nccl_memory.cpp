#include "runtime/nccl_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/variables.hpp"
#include "bootstrap/known_ranks.hpp"

namespace nearlight::runtime {

namespace {

using Created = NcclMemories::Created;

enum class Wish : std::uint32_t { best, windows, vmm };
constexpr const char* kNames[] = {"nothing", "nccl_window", "cuda_vmm"};
const char* name_of(Wish wish) { return kNames[static_cast<std::size_t>(wish)]; }

Result<Wish> own_wish() {
  const std::optional<std::string> said = variables::read(variables::kNcclMemory);
  if (!said) return Wish::best;
  for (const Wish wish : {Wish::windows, Wish::vmm}) {
    if (*said == name_of(wish)) return wish;
  }
  return failure(Code::invalid_argument, "%s: '%s' is neither %s nor %s", variables::kNcclMemory.name,
                 said->c_str(), name_of(Wish::windows), name_of(Wish::vmm));
}

// The same on all ranks.
Result<Wish> common_wish(Exchange& known, Deadline deadline) {
  const auto mine = own_wish();
  NL_TRY(agree(known, mine.status(), deadline));
  NL_TRY_ASSIGN(const auto all, gather_values(known, mine.value(), deadline));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] > Wish::vmm)
      return failure(Code::invalid_usage, "rank %zu says what is no wish for memory", rank);
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return failure(Code::invalid_usage, "%s: rank 0 says %s, rank %zu says %s", variables::kNcclMemory.name,
                   name_of(all[0]), rank, name_of(all[rank]));
  }
  return *mine;
}

Result<bool> all_lack_windows(Exchange& known, const Status& mine, Deadline deadline) {
  NL_TRY_ASSIGN(const auto codes, gather_values(known, static_cast<int>(mine.code()), deadline));
  return std::ranges::all_of(codes, [](int code) { return code == static_cast<int>(Code::unsupported); });
}

Created on_windows(const std::shared_ptr<Exchange>& known, const NcclMemories& memories,
                   const std::string& reason, Deadline deadline) {
  // First, as creation takes longer; and by all, so that no rank goes another way.
  NL_TRY(agree(*known, memories.windows_tested, deadline));
  return memories.windows(known, reason);
}

}  // namespace

Created create_on_nccl_memory(std::shared_ptr<Exchange> known, const NcclMemories& memories,
                              Deadline deadline) {
  NL_TRY_ASSIGN(const Wish wish, common_wish(*known, deadline));
  std::string reason = std::string(variables::kNcclMemory.name) + " says so";
  if (wish == Wish::windows) return on_windows(known, memories, reason, deadline);
  if (wish == Wish::best) {
    Created made = on_windows(known, memories, memories.nccl + " has windows", deadline);
    if (made.ok()) return made;
    const auto lacking = all_lack_windows(*known, made.status(), deadline);
    if (!lacking.ok() || !*lacking) return made;
    reason = made.status().text();
    NL_TRY(agree(*known, memories.may_do_without.with_context(reason), deadline));
  }
  auto met = bootstrap::meet_known_ranks(*known, deadline);
  NL_TRY(met.status().with_context(reason));
  known.reset();
  Created made = memories.vmm(std::move(*met), reason, wish == Wish::vmm);
  if (made.ok() || made.status().text() == reason) return made;
  return made.status().with_context(reason);
}

}  // namespace nearlight::runtime
