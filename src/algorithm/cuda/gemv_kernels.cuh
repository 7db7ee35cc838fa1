// The kernels of the GEMV with its AllReduce, or with an AllGather in front; each .cu file beside it
// instantiates one type.
#pragma once

#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/gemv.hpp"
#include "algorithm/gather_tokens.hpp"
#include "algorithm/gemv.hpp"
#include "exec/cuda_tile_product.cuh"

namespace nearlight::algorithm::cuda {

using GemvKernel = void (*)(const GemvArgs);

// kMax 1: one rank alone. A CTA fills an SM. Before the wait nothing is read: fetching into L2 is not
// reading. The next kernel is let in by the product.
template <class T, int kMax, Variant variant>
__global__ void __launch_bounds__(exec::kTileThreads, 1) gemv(const __grid_constant__ GemvArgs args) {
  const AllReduceArgs& all = args.all;
  const Gemv& what = args.gemv;
  const std::uint32_t cta = exec::cta_index();
  const TileShare share{cta, exec::cta_count(), what.tiles};
  const GemvOutput<CudaSpace, T> output(what);
  exec::CudaTileProduct<T> product({what.weight, what.input, what.tokens, what.in_vecs, what.tiles},
                                   args.splits, args.shared_bytes != 0, all.late);
  product.fetch(share.tile_if(product.team(), share.turns()));
  exec::wait_for_previous_kernel();
  exec::CtaCoop coop;
  if constexpr (kMax == 1) {
    product.start(share.tile_if(product.team(), share.turns()));
    product.take_tokens();
    coop.sync();
    gemv_tiles(share, product, output);
  } else {
    State* const state = reinterpret_cast<State*>(all.states) + cta;
    const auto region = region_of<kMax>(all, cta);
    protocol::Session session(region, coop, *state, control_of(all), all.first_region + cta, all.collective);
    gemv_all_reduce<kMax>(session, share, what.tokens, product, output,
                          hooks_of<variant>(all, cta, session.epoch()));
    session.close();
  }
}

// The first lot of the matrix is on its way while the tokens are gathered; there is so much of it that
// nothing has to be worked out meanwhile.
template <class T, int kMax, Variant variant>
__global__ void __launch_bounds__(exec::kTileThreads, 1)
    all_gather_gemv(const __grid_constant__ GemvArgs args) {
  const AllReduceArgs& all = args.all;
  const Gemv& what = args.gemv;
  const std::uint32_t cta = exec::cta_index();
  const TileShare share{cta, exec::cta_count(), what.tiles};
  exec::CudaTileProduct<T> product({what.weight, nullptr, what.tokens, what.in_vecs, what.tiles}, args.splits,
                                   true, all.late);
  const std::uint32_t first_tile = share.tile_if(product.team(), share.turns());
  product.fetch(first_tile);
  exec::wait_for_previous_kernel();
  exec::CtaCoop coop;
  State* const state = reinterpret_cast<State*>(all.states) + cta;
  protocol::Session session(region_of<kMax>(all, cta), coop, *state, control_of(all), all.first_region + cta,
                            all.collective);
  product.start(first_tile);
  gather_tokens<SentinelCell<T>, kMax>(
      session, what,
      [&](std::uint32_t token, std::uint32_t vec, const exec::Vec& value) {
        product.token_place(token, vec) = value;
      },
      hooks_of<variant>(all, cta, session.epoch()));
  // [F2]: nothing is worked out of vectors that are not all there.
  session.sync_failure();
  session.close();
  if (session.failed()) {
    product.drop();
  } else {
    gemv_tiles(share, product, GemvOutput<CudaSpace, T>(what));
  }
}

struct GemvPick {
  int nranks;
  bool gathers;
  bool traced;
};

template <class T>
GemvKernel pick_gemv(const GemvPick& pick) {
  if (pick.nranks == 1) return gemv<T, 1, Variant::once>;
  if (pick.traced) {
    if constexpr (std::is_same_v<T, Bf16>)
      return pick.gathers ? all_gather_gemv<T, 8, Variant::traced> : gemv<T, 8, Variant::traced>;
  }
  if (pick.nranks == 2)
    return pick.gathers ? all_gather_gemv<T, 2, Variant::once> : gemv<T, 2, Variant::once>;
  return pick.gathers ? all_gather_gemv<T, 8, Variant::once> : gemv<T, 8, Variant::once>;
}

GemvKernel pick_gemv_bf16(const GemvPick& pick);
GemvKernel pick_gemv_f16(const GemvPick& pick);

}  // namespace nearlight::algorithm::cuda
