// nccl.h, for who defines its functions: they are to be seen from outside.
#pragma once

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

// Behind the definition of a function: its other name, under which a profiler that has put itself in front
// of NCCL calls on. Both are one function, so that ranks that call it by different names decide alike.
#define NL_SECOND_NAME(name) \
  extern "C" [[gnu::visibility("default"), gnu::alias(#name)]] decltype(name) p##name
