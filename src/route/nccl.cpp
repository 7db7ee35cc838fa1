#include "route/nccl.hpp"

namespace nearlight::route {

namespace {

constexpr int kFirstFp8 = 22400, kFp8Capability = 90;

bool is_fp8(DataType type) { return type == DataType::f8e4m3 || type == DataType::f8e5m2; }

}  // namespace

bool adds_small_types_wrongly(int version) { return version >= 22803 && version <= 22907; }

bool starts_before_its_input(int version) { return version >= 22800 && version < 23007; }

const char* kept_from_nccl(const AttachedNccl& nccl, DataType type, ReduceOp op, std::size_t bytes) {
  if (nccl.version == 0) return "not handed to NCCL: none is attached to this communicator";
  // It has an operator for that, which would have to be made and kept for each factor.
  if (op == ReduceOp::premul_sum) return "not handed to NCCL: a pre-multiplied sum stays with nearlight";
  if (const char* const why = never_by_nccl(nccl, type); why != nullptr) return why;
  if (needs_own_buffer(nccl, type, bytes)) {
    return "not handed to NCCL: 2.28.3 to 2.29.7 may add types of 1 and 2 bytes wrongly below 128 KiB";
  }
  return nullptr;
}

const char* never_by_nccl(const AttachedNccl& nccl, DataType type) {
  if (is_fp8(type) && nccl.version < kFirstFp8) return "not handed to NCCL: no fp8 before 2.24";
  if (is_fp8(type) && nccl.capability < kFp8Capability) {
    return "not handed to NCCL: it reduces fp8 from compute capability 9.0 on";
  }
  return nullptr;
}

bool needs_own_buffer(const AttachedNccl& nccl, DataType type, std::size_t bytes) {
  return size_of(type) <= 2 && bytes < kFirstSafeBytes && adds_small_types_wrongly(nccl.version);
}

std::string faults_of_nccl(int version) {
  std::string text;
  if (adds_small_types_wrongly(version)) {
    text +=
        "adds types of 1 and 2 bytes wrongly on symmetric windows at addresses that are no multiple of 4 "
        "(not "
        "handed over below 128 KiB)";
  }
  if (starts_before_its_input(version)) {
    text += std::string(text.empty() ? "" : "; ") +
            "kernels on symmetric windows do not wait for the kernel in front of them (an empty one is put "
            "there)";
  }
  return text;
}

}  // namespace nearlight::route
