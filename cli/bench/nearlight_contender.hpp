// nearlight's own communicator as a contender.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// `options` go along with every call.
// `sm`: where kernel mode runs its CTA (LoopPlan::sm). `names_choice`: impl() is
// "nearlight_<algorithm>_<protocol>" of those that are forced, for several of them in one run.
std::unique_ptr<Contender> make_nearlight_contender(std::unique_ptr<runtime::Communicator> communicator,
                                                    const runtime::CallOptions& options,
                                                    std::optional<std::uint32_t> sm = {},
                                                    bool names_choice = false);

}  // namespace nearlight::bench
