#include "algorithm/host/gemv.hpp"

#include "algorithm/host/parts_session.hpp"
#include "algorithm/host/tile_product.hpp"

namespace nearlight::algorithm::host {

namespace {

template <class T>
void run_type(const GemvCall& call) {
  const auto work = [&](auto& session, const auto& hooks) {
    using S = typename std::remove_reference_t<decltype(session)>::Space;
    const Gemv& gemv = call.gemv;
    SoloTileProduct<S, T> product({gemv.weight, gemv.input, gemv.tokens, gemv.in_vecs, gemv.tiles});
    gemv_all_reduce<protocol::kMaxRanks>(session, TileShare{0, 1, gemv.tiles}, gemv.tokens, product,
                                         GemvOutput<S, T>(gemv), hooks);
  };
  if (has_test_hooks(call.all)) {
    with_hooked_session(call.all, work);
  } else {
    with_session(call.all, work);
  }
}

}  // namespace

void gemv(const GemvCall& call) {
  if (call.all.type == DataType::bf16) {
    run_type<Bf16>(call);
  } else {
    run_type<F16>(call);
  }
}

}  // namespace nearlight::algorithm::host
