#include "dropin/async_status.hpp"

namespace nearlight::dropin {

Status status_to_tell(const std::optional<runtime::Fault>& fault) {
  if (!fault) return {};
  // The time is that of a wait that ended in vain.
  if (fault->status.code() == Code::remote_error && fault->time_ns == 0) return {};
  return fault->status;
}

}  // namespace nearlight::dropin
