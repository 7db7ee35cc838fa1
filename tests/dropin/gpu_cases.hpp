// What a program does that uses NCCL on two GPUs and knows nothing of the drop-in.
#pragma once

#include <string>

namespace nearlight::test {

// 0: all was right; else the problems stand on stderr. `rank` of two processes that meet by the file
// `meeting`; -1: both ranks are this process's.
int run_gpu_case(const std::string& name, int rank, const std::string& meeting);

}  // namespace nearlight::test
