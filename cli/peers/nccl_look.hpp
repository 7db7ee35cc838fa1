// Which libnccl would be used, without creating a communicator.
#pragma once

#include <string>

namespace nearlight::peers {

struct NcclLook {
  std::string headers = "no";  // version of those this program was built with
  std::string path;            // of the library that would be used; "" for none
  std::string version;         // "2.28.9"
  int version_code = 0;        // 22809
  std::string faults;          // of that version, which hand-over avoids; "" for none known
  std::string problem;         // why there is none; "" when there is one
  std::string window_problem;  // why its windows are not used; "" when they are
};

NcclLook look_at_nccl();

}  // namespace nearlight::peers
