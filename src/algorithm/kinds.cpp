#include "algorithm/kinds.hpp"

namespace nearlight::algorithm {

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::copy:
      return "copy";
    case Algorithm::one_shot:
      return "one_shot";
    case Algorithm::two_shot:
      return "two_shot";
    case Algorithm::two_shot_atomic:
      return "two_shot_atomic";
    case Algorithm::nccl:
      return "nccl";
    case Algorithm::staged:
      return "staged";
  }
  return "invalid";
}

const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return "ll";
    case Protocol::simple:
      return "simple";
    case Protocol::sentinel:
      return "sentinel";
    case Protocol::ll128:
      return "ll128";
  }
  return "invalid";
}

}  // namespace nearlight::algorithm
