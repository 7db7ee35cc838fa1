// Which rank of how many a caller is, in a group of processes that find each other by a key.
#pragma once

#include <string>

#include "base/status.hpp"

namespace nearlight::api {

struct Place {
  int rank, nranks;
  std::string key;
};

// Code::invalid_argument: the text names the argument or the variable.
Status check_nranks(int nranks);

// rank and nranks both -1: from the job that this process belongs to; key null: likewise. Otherwise as given.
// Code::invalid_argument names the argument, or the variable of the job, that is wrong or missing;
// Code::unsupported: the job is spread over several hosts.
Result<Place> find_place(int rank, int nranks, const char* key);

}  // namespace nearlight::api
