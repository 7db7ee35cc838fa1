// A build without CUDA or without NCCL's headers.
#include "cli/peers/nccl_look.hpp"
#include "cli/peers/nccl_peer.hpp"

namespace nearlight::peers {

namespace {
constexpr const char* kWhy = NEARLIGHT_HAS_CUDA ? "built without NCCL's headers" : "built without CUDA";
}  // namespace

NcclLook look_at_nccl() {
  NcclLook look;
  look.problem = look.window_problem = kWhy;
  return look;
}

Result<std::shared_ptr<NcclComm>> create_nccl_comm(Exchange&) { return Status(Code::unsupported, kWhy); }

Result<std::unique_ptr<bench::Contender>> make_nccl_contender(std::shared_ptr<NcclComm>, bool) {
  return Status(Code::unsupported, kWhy);
}

}  // namespace nearlight::peers
