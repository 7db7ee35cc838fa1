// The region as the CPU's drivers see it.
#pragma once

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/one_shot.hpp"

namespace nearlight::algorithm::host {

// Two ranks are the case where every instruction counts: their number is then a constant.
template <int kMax>
using Region = protocol::FlatRegion<exec::HostSpace, kMax == 2 ? 2 : 0>;
static_assert(exec::ExecSpace<exec::HostSpace> && exec::Coop<exec::SoloCoop> &&
              protocol::RegionView<Region<2>>);

}  // namespace nearlight::algorithm::host
