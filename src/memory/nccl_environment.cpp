#include "memory/nccl_environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace nearlight::memory {

Status check_gpus_are_not_kept_apart() {
  const auto is = [](const char* name, std::initializer_list<std::string_view> values) {
    const char* const text = std::getenv(name);
    return text != nullptr && std::find(values.begin(), values.end(), text) != values.end();
  };
  if (!is("NCCL_P2P_DISABLE", {"1"}) && !is("NCCL_P2P_LEVEL", {"LOC", "0"})) return {};
  return failure(Code::unsupported, "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL keeps the GPUs apart");
}

}  // namespace nearlight::memory
