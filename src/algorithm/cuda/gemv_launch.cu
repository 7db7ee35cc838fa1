#include <bit>

#include "algorithm/cuda/gemv_kernels.cuh"

namespace nearlight::algorithm::cuda {

namespace {

GemvKernel pick(DataType type, const GemvPick& pick) {
  return type == DataType::bf16  ? pick_gemv_bf16(pick)
         : type == DataType::f16 ? pick_gemv_f16(pick)
                                 : nullptr;
}

Status load_gemv(bool traced, bool large_shared) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const int nranks : {1, 2, 8}) {
      for (const bool gathers : {false, true}) {
        const GemvKernel kernel = pick(type, {nranks, gathers, traced});
        NL_TRY(load_kernel(kernel));
        const cudaError_t error = cudaFuncSetAttribute(
            reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(exec::kTileAheadBytes + gemv_shared(large_shared)));
        if (error != cudaSuccess) return cuda_failure("cudaFuncSetAttribute", error);
      }
    }
  }
  return {};
}

// Of the warps that may share a tile: so many that each has two lots of what is in flight at once.
std::uint32_t splits_for(std::uint32_t in_vecs) {
  constexpr std::uint32_t kLot = 2 * 4 * exec::kTileAhead,
                          kMost = exec::kTileThreads / 32;  // vectors of a row; warps
  const std::uint32_t lots = in_vecs / kLot;
  return lots <= 1 ? 1 : lots >= kMost ? kMost : std::bit_floor(lots);
}

}  // namespace

Status launch_gemv(const GemvArgs& args, const GemvShape& shape, cudaStream_t stream) {
  const GemvKernel kernel = pick(shape.type, {args.all.nranks, shape.gathers, shape.traced});
  if (kernel == nullptr)
    return failure(Code::invalid_argument, "no kernel for a product of %s", name_of(shape.type));
  GemvArgs own = args;
  own.splits = splits_for(args.gemv.in_vecs);
  const std::uint64_t bytes = std::uint64_t{args.gemv.tokens} * exec::tile_token_stride(args.gemv.in_vecs);
  own.shared_bytes = bytes <= gemv_shared(shape.large_shared) ? static_cast<std::uint32_t>(bytes) : 0;
  if (shape.gathers && args.all.nranks > 1 && own.shared_bytes == 0) {
    return failure(Code::invalid_argument, "%u tokens of %u vectors do not fit the shared memory",
                   args.gemv.tokens, args.gemv.in_vecs);
  }
  return enqueue(kernel, own, shape.grid, exec::kTileThreads, stream, 1,
                 exec::kTileAheadBytes + own.shared_bytes);
}

Status preload_gemv(bool large_shared) { return load_gemv(false, large_shared); }
Status preload_traced_gemv(bool large_shared) { return load_gemv(true, large_shared); }

}  // namespace nearlight::algorithm::cuda
