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
