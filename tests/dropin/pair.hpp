// Two ranks of one thread and what they reduce. Streams are numbers here: 1 is s1 in the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/dropin/fake_nccl.hpp"
#include "tests/dropin/program.hpp"

namespace nearlight::test {

inline cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// Two ranks of one thread, as ncclCommInitAll makes them.
struct Pair {
  Pair() { CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess); }
  ~Pair() {
    for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  ncclComm_t& operator[](int rank) { return comms[rank]; }
  ncclComm_t comms[2] = {};
};

// What each rank sends: rank + 1 everywhere.
struct Buffers {
  explicit Buffers(std::size_t count) {
    for (int rank = 0; rank < 2; ++rank) {
      send[rank].assign(count, static_cast<float>(rank + 1));
      recv[rank].assign(count, -1.0F);
    }
  }
  bool all_are(float value) const {
    for (const auto& part : recv) {
      for (const float element : part) {
        if (element != value) return false;
      }
    }
    return true;
  }
  std::vector<float> send[2], recv[2];
};

inline ncclResult_t reduce(Pair& pair, Buffers& buffers, int rank, std::uintptr_t on,
                           ncclRedOp_t op = ncclSum, ncclDataType_t type = ncclFloat32) {
  return ncclAllReduce(buffers.send[rank].data(), buffers.recv[rank].data(), buffers.send[rank].size(), type,
                       op, pair[rank], stream(on));
}

}  // namespace nearlight::test
