#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_i32(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant) {
  switch (variant) {
    case Variant::once: return pick_op<std::int32_t, Variant::once>(op, nranks, protocol_kind, held);
    case Variant::loop: return pick_op<std::int32_t, Variant::loop>(op, nranks, protocol_kind, held);
    case Variant::delayed: return nullptr;
  }
  return nullptr;
}

}  // namespace nearlight::algorithm::cuda
