// The annotations that let the same source compile for the GPU and for the CPU.
#pragma once

#if defined(__CUDACC__)
#define NL_FN __device__ __forceinline__
// For what the host prepares and a kernel reads: layouts, views.
#define NL_HOST_FN __host__ __device__ __forceinline__
// Rarely run code, kept out of line so that it costs the hot path nothing (and codegen tests can tell them
// apart).
#define NL_COLD_FN __device__ __noinline__
// Code that several kernels call rather than each having its own copy.
#define NL_SHARED_FN __device__ __noinline__
#define NL_UNROLL _Pragma("unroll")
// For polling: a small loop stays in the instruction cache, and there is nothing to gain between two polls.
#define NL_NO_UNROLL _Pragma("unroll 1")
#else
#define NL_FN inline
#define NL_HOST_FN inline
#define NL_COLD_FN [[gnu::noinline, gnu::cold]] inline
#define NL_SHARED_FN inline
#define NL_UNROLL
#define NL_NO_UNROLL
#endif
