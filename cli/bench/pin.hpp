// Which processors the ranks of a CPU benchmark run on.
#pragma once

#include "base/status.hpp"

namespace nearlight::bench {

// Processors this process may use.
int usable_cpus();
// Binds the calling thread to the rank's own processor when there is one for every rank; else leaves it free.
Status pin_rank(int rank, int nranks);

}  // namespace nearlight::bench
