#include "base/exchange.hpp"

#include <algorithm>
#include <cstring>

namespace nearlight {

namespace {
struct Verdict {
  int code;
  char text[204];
};
}  // namespace

Status check_members(std::span<const int> members, int self, int nranks) {
  int before = -1;
  for (const int rank : members) {
    if (rank < 0 || rank >= nranks)
      return failure(Code::invalid_argument, "members: %d is no rank of %d", rank, nranks);
    if (rank <= before)
      return failure(Code::invalid_argument, "members: rank %d comes after rank %d", rank, before);
    before = rank;
  }
  if (std::find(members.begin(), members.end(), self) != members.end()) return {};
  return failure(Code::invalid_argument, "members: rank %d itself is not among them", self);
}

Status other_members(std::span<const int> members, int peer, std::span<const int> theirs) {
  return failure(Code::invalid_usage, "regroup: this rank goes on with ranks %s, rank %d with ranks %s",
                 in_words(members).c_str(), peer, in_words(theirs).c_str());
}

std::string in_words(std::span<const int> members) {
  std::string words;
  for (const int rank : members) words += (words.empty() ? "" : ", ") + std::to_string(rank);
  return words;
}

Status agree(Exchange& exchange, const Status& mine, Deadline deadline) {
  Verdict verdict{};
  verdict.code = static_cast<int>(mine.code());
  std::memcpy(verdict.text, mine.text().data(), std::min<std::size_t>(mine.text().size(), 200));
  auto all = gather_values(exchange, verdict, deadline);
  // What is another rank's fault can be the consequence of what failed the exchange.
  if (!mine.ok() && (all.ok() || mine.code() != Code::remote_error)) return mine;
  NL_TRY(all.status());
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const Verdict& other = (*all)[rank];
    if (other.code != 0) {
      return failure(static_cast<Code>(other.code), "rank %zu: %.*s", rank,
                     static_cast<int>(sizeof other.text), other.text);
    }
  }
  return {};
}

}  // namespace nearlight
