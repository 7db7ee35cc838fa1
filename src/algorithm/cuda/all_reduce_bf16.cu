#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_bf16(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant) {
  switch (variant) {
    case Variant::once: return pick_op<Bf16, Variant::once>(op, nranks, protocol_kind, held);
    case Variant::loop: return pick_op<Bf16, Variant::loop>(op, nranks, protocol_kind, held);
    case Variant::delayed: return nullptr;
  }
  return nullptr;
}

}  // namespace nearlight::algorithm::cuda
