#include "algorithm/host/barrier.hpp"

#include "algorithm/host/region.hpp"

namespace nearlight::algorithm::host {

void barrier(const BarrierCall& call) {
  protocol::Session session(Region<protocol::kMaxRanks>(call.region, call.stride, call.rank, call.layout),
                            exec::SoloCoop{}, *call.state, call.control, 0, call.collective);
  protocol::flag_barrier(session);
  session.close();
}

}  // namespace nearlight::algorithm::host
