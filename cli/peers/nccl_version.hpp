// NCCL's version numbers as people write them.
#pragma once

#include <string>

namespace nearlight::peers {

// 22809 is "2.28.9".
inline std::string nccl_version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

}  // namespace nearlight::peers
