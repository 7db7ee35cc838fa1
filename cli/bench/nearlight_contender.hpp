// nearlight's own communicator as a contender.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// One of two that are alike but for a part of the library (cli/bench/paired.hpp).
struct PairMember {
  std::string impl = {};  // "": by the choice
  // Its operations may not end of themselves: the process then does.
  std::optional<std::chrono::milliseconds> ends_after = {};
  bool traced = false;  // choices that nothing would be traced of are refused
};

// `options` go along with every call.
// `sm`: where kernel mode runs its CTA (LoopPlan::sm). `names_choice`: impl() is
// "nearlight_<algorithm>_<protocol>" of those that are forced, for several of them in one run.
std::unique_ptr<Contender> make_nearlight_contender(std::shared_ptr<runtime::Communicator> communicator,
                                                    const runtime::CallOptions& options,
                                                    std::optional<std::uint32_t> sm = {},
                                                    bool names_choice = false, const PairMember& member = {});

}  // namespace nearlight::bench
