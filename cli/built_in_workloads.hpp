// The files of bench/workloads/, compiled in by the build so that a program carried elsewhere has them.
#pragma once

#include <span>
#include <string_view>

namespace nearlight::cli {

struct BuiltInWorkload {
  std::string_view name;  // of the file, without .json
  std::string_view json;
};

extern const std::span<const BuiltInWorkload> kBuiltInWorkloads;

}  // namespace nearlight::cli
