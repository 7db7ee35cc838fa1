#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_f32(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant) {
  switch (variant) {
    case Variant::once: return pick_op<float, Variant::once>(op, nranks, protocol_kind, held);
    case Variant::loop: return pick_op<float, Variant::loop>(op, nranks, protocol_kind, held);
    case Variant::delayed:
      if (op == ReduceOp::sum) return pick_shape<float, ReduceOp::sum, 8, Variant::delayed>(protocol_kind, held);
      return nullptr;
  }
  return nullptr;
}

}  // namespace nearlight::algorithm::cuda
