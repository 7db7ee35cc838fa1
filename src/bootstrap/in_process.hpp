// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "base/exchange.hpp"

namespace nearlight::bootstrap {

// One Exchange a rank, in rank order; each is then used by one thread. The group lives until the last of them
// is destroyed. A rank that is destroyed ends the waits of those who still need it with Code::remote_error.
// nranks >= 1.
std::vector<std::unique_ptr<Exchange>> make_in_process_group(int nranks);

}  // namespace nearlight::bootstrap
