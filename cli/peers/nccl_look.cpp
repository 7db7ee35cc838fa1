#include "cli/peers/nccl_look.hpp"

#include <nccl.h>

#include "memory/nccl_api.hpp"
#include "memory/nccl_window_heap.hpp"
#include "route/nccl.hpp"

namespace nearlight::peers {

NcclLook look_at_nccl() {
  NcclLook look;
  look.headers = memory::nccl_version_text(NCCL_VERSION_CODE);
  auto nccl = memory::Nccl::find();
  if (!nccl.ok()) {
    look.problem = look.window_problem = nccl.status().text();
    return look;
  }
  look.path = (*nccl)->path();
  look.version = memory::nccl_version_text((*nccl)->version());
  look.version_code = (*nccl)->version();
  look.faults = route::faults_of_nccl(look.version_code);
  look.window_problem = memory::check_nccl_window_version((*nccl)->version()).text();
  return look;
}

}  // namespace nearlight::peers
