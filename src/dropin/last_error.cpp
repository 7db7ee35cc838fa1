#include "dropin/last_error.hpp"

#include <string>

namespace nearlight::dropin {

namespace {
// A pointer alone, so that a call that does not fail makes no object of this thread.
thread_local std::string* text = nullptr;

struct Owner {
  Owner() { text = &own; }
  ~Owner() { text = nullptr; }
  std::string own;
};
}  // namespace

ncclResult_t code_of(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return ncclSuccess;
    // NCCL's numbers 1..7 are ours.
    case Code::cuda_error:
    case Code::system_error:
    case Code::internal_error:
    case Code::invalid_argument:
    case Code::invalid_usage:
    case Code::remote_error:
    case Code::in_progress:
      return static_cast<ncclResult_t>(status.code());
    // A rank that does not answer is what NCCL calls a remote error.
    case Code::timeout:
    case Code::aborted:
      return ncclRemoteError;
    case Code::unsupported:
      return ncclSystemError;
  }
  return ncclInternalError;
}

ncclResult_t failed(const Status& status) {
  static thread_local Owner owner;
  owner.own = "nearlight: " + status.text();
  return code_of(status);
}

ncclResult_t forwarded(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && text != nullptr) text->clear();
  return result;
}

const char* last_error() { return text != nullptr && !text->empty() ? text->c_str() : nullptr; }

}  // namespace nearlight::dropin
