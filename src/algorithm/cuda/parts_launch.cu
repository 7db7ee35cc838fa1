#include "algorithm/cuda/parts_kernels.cuh"

namespace nearlight::algorithm::cuda {

namespace {

template <Variant variant>
PartsKernel pick_moved(Protocol protocol, int nranks) {
  if (protocol == Protocol::ll) {
    return nranks <= 2 ? parts_moved<2, Protocol::ll, variant> : parts_moved<8, Protocol::ll, variant>;
  }
  return protocol == Protocol::simple ? parts_moved<8, Protocol::simple, variant> : nullptr;
}

PartsKernel pick(const PartsShape& shape, int nranks) {
  if (shape.agrees) {
    if (shape.reduces || shape.delayed || shape.protocol != Protocol::ll) return nullptr;
    return nranks <= 2 ? parts_moved<2, Protocol::ll, Variant::once, true>
                       : parts_moved<8, Protocol::ll, Variant::once, true>;
  }
  if (!shape.reduces) {
    return shape.delayed  ? pick_moved<Variant::delayed>(shape.protocol, nranks)
           : shape.traced ? pick_moved<Variant::traced>(shape.protocol, nranks)
                          : pick_moved<Variant::once>(shape.protocol, nranks);
  }
  if (shape.delayed) return nullptr;
  for (const auto pick_some : {pick_reduced_integer, pick_reduced_float, pick_reduced_small_float}) {
    if (const PartsKernel kernel = pick_some(shape.type, shape.protocol, nranks); kernel != nullptr)
      return kernel;
  }
  return nullptr;
}

// All of them; those that there are not are passed over.
Status load_parts(bool delayed, bool traced) {
  for (const int nranks : {2, 8}) {
    for (const Protocol protocol : kProtocols) {
      for (const bool reduces : {false, true}) {
        for (const DataType type : kDataTypes) {
          for (const bool agrees : {false, true}) {
            const PartsShape shape{reduces, type, protocol, 1, 32, delayed, traced, agrees};
            if (const PartsKernel kernel = pick(shape, nranks); kernel != nullptr)
              NL_TRY(load_kernel(kernel));
          }
          if (!reduces) break;
        }
      }
    }
  }
  return {};
}

}  // namespace

Status launch_parts(const PartsArgs& args, const PartsShape& shape, cudaStream_t stream) {
  const PartsKernel kernel = pick(shape, args.all.nranks);
  if (kernel == nullptr) {
    return failure(Code::invalid_argument, "no kernel that %s by %s, %d ranks%s",
                   shape.reduces ? "reduces parts" : "moves parts", name_of(shape.protocol), args.all.nranks,
                   shape.delayed ? ", with delays" : "");
  }
  return enqueue(kernel, args, shape.grid, shape.threads, stream);
}

Status preload_parts() {
  NL_TRY(load_parts(false, false));
  return load_parts(true, false);
}

Status preload_traced_parts() { return load_parts(false, true); }

}  // namespace nearlight::algorithm::cuda
