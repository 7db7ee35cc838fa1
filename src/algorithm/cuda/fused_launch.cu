#include "algorithm/cuda/fused_kernels.cuh"

namespace nearlight::algorithm::cuda {

namespace {

FusedKernel pick(DataType type, const FusedPick& pick) {
  return type == DataType::bf16  ? pick_fused_bf16(pick)
         : type == DataType::f16 ? pick_fused_f16(pick)
                                 : nullptr;
}

Status load_fused(bool traced) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const int nranks : {2, 4, 8}) {
      for (const std::uint32_t held : {0u, 1u, 2u, 4u}) {
        for (const bool once : {false, true}) {
          if (const FusedKernel kernel = pick(type, {nranks, held, once, traced}); kernel != nullptr)
            NL_TRY(load_kernel(kernel));
        }
      }
    }
  }
  return {};
}

}  // namespace

Status launch_fused(const FusedArgs& args, const FusedShape& shape, cudaStream_t stream) {
  const FusedKernel kernel = pick(shape.type, {args.all.nranks, shape.held, shape.once, shape.traced});
  if (kernel == nullptr) {
    return failure(Code::invalid_argument, "no kernel for fused rows of %s, %u vectors a thread%s, %d ranks",
                   name_of(shape.type), shape.held, shape.once ? ", one row" : "", args.all.nranks);
  }
  const std::uint32_t cluster = args.rows.normalises ? args.rows.spread : 1;
  return enqueue(kernel, args, shape.grid, shape.threads, stream, cluster);
}

Status preload_fused() { return load_fused(false); }
Status preload_traced_fused() { return load_fused(true); }

}  // namespace nearlight::algorithm::cuda
