// nearlight's own communicator as a contender.
#pragma once

#include <memory>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// `options` go along with every call.
std::unique_ptr<Contender> make_nearlight_contender(std::unique_ptr<runtime::Communicator> communicator,
                                                    const runtime::CallOptions& options);

}  // namespace nearlight::bench
