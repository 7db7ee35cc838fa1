#include "algorithm/host/barrier.hpp"

#include "algorithm/host/region.hpp"
#include "algorithm/traced.hpp"

namespace nearlight::algorithm::host {

void barrier(const BarrierCall& call) {
  protocol::Session session(Region<protocol::kMaxRanks>(call.region, call.stride, call.rank, call.layout),
                            exec::SoloCoop{}, *call.state, call.control, 0, call.collective);
  if (call.trace != nullptr) {
    const Traced<exec::HostSpace> hooks(call.trace, trace::kLinesOnCpu, call.collective, session.epoch(),
                                        true);
    hooks.at(DelayPoint::before_publish);
    protocol::flag_barrier(session);
    if (!session.failed()) hooks.at(DelayPoint::after_arrival);
    hooks.at(DelayPoint::after_read);
  } else {
    protocol::flag_barrier(session);
  }
  session.close();
}

}  // namespace nearlight::algorithm::host
