#include "algorithm/host/gemv.hpp"

#include <vector>

#include "algorithm/gather_tokens.hpp"
#include "algorithm/host/parts_session.hpp"
#include "algorithm/host/tile_product.hpp"

namespace nearlight::algorithm::host {

namespace {

template <class Work>
void in_session(const AllReduceCall& all, Work&& work) {
  if (has_test_hooks(all)) {
    with_hooked_session(all, work);
  } else {
    with_session(all, work);
  }
}

template <class Work>
void with_element(DataType type, Work&& work) {
  if (type == DataType::bf16) {
    work(TypeTag<Bf16>{});
  } else {
    work(TypeTag<F16>{});
  }
}

}  // namespace

void gemv(const GemvCall& call) {
  with_element(call.all.type, [&]<class T>(TypeTag<T>) {
    in_session(call.all, [&](auto& session, const auto& hooks) {
      using S = typename std::remove_reference_t<decltype(session)>::Space;
      const Gemv& gemv = call.gemv;
      SoloTileProduct<S, T> product({gemv.weight, gemv.input, gemv.tokens, gemv.in_vecs, gemv.tiles});
      // Alone it needs no packets, of which there may be too few for one tile.
      if (session.view().nranks() == 1)
        return gemv_tiles(TileShare{0, 1, gemv.tiles}, product, GemvOutput<S, T>(gemv));
      gemv_all_reduce<protocol::kMaxRanks>(session, TileShare{0, 1, gemv.tiles}, gemv.tokens, product,
                                           GemvOutput<S, T>(gemv), hooks);
    });
  });
}

void all_gather_gemv(const GemvCall& call) {
  const Gemv& gemv = call.gemv;
  std::vector<exec::Vec> tokens(std::size_t{gemv.tokens} * gemv.in_vecs);
  with_element(call.all.type, [&]<class T>(TypeTag<T>) {
    in_session(call.all, [&](auto& session, const auto& hooks) {
      gather_tokens<SentinelCell<T>, protocol::kMaxRanks>(
          session, gemv,
          [&](std::uint32_t token, std::uint32_t vec, const exec::Vec& value) {
            tokens[std::size_t{token} * gemv.in_vecs + vec] = value;
          },
          hooks);
      if (session.failed()) return;
      using S = exec::HostSpace;
      SoloTileProduct<S, T> product({gemv.weight, tokens.data(), gemv.tokens, gemv.in_vecs, gemv.tiles});
      gemv_tiles(TileShare{0, 1, gemv.tiles}, product, GemvOutput<S, T>(gemv));
    });
  });
}

}  // namespace nearlight::algorithm::host
