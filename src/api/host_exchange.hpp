// How the processes of a CPU group find each other.
#pragma once

#include <memory>

#include "base/exchange.hpp"

namespace nearlight::api {

struct Place {
  int rank = -1;  // -1: from the job's environment, as nranks then
  int nranks = -1;
  const char* key = nullptr;  // null: the job's own
};

// Collective over the ranks. Code::invalid_argument names what is wrong with the place.
Result<std::unique_ptr<Exchange>> meet_processes(const Place& place, Deadline deadline);

}  // namespace nearlight::api
