// A first look at the GPUs that leaves this process as it was: ranks may still be forked from it.
#pragma once

namespace nearlight::cli {

struct GpuLook {
  int gpus = 0;
  int together = 0;                // of them: the first so many all reach each other
  char problem[256] = {};          // why there are no GPUs; "" otherwise
  char nccl_problem[256] = {};     // why there is no NCCL to measure; "" when there is
  char nvshmem_problem[256] = {};  // why there is no NVSHMEM to measure; "" when there is
  char window_problem[256] = {};   // why NCCL's windows are not used; "" when they are

  bool nccl() const { return nccl_problem[0] == 0; }
  bool nvshmem() const { return nvshmem_problem[0] == 0; }
  bool windows() const { return window_problem[0] == 0; }
};

// CUDA does not survive a fork, so a child process looks. Takes up to a few seconds, never longer than 60.
GpuLook look_at_gpus();

}  // namespace nearlight::cli
