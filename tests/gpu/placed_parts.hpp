// A collective by parts on GPUs of which every bit is known: what each rank sends, what it must receive, and
// its buffers with guards around them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"

namespace nearlight::test {

// The same on all ranks.
struct PartsCase {
  Collective collective = Collective::all_gather;
  Pattern pattern;
  std::uint64_t count = 0;
  int root = 0;
  runtime::CallOptions options = {};

  std::uint64_t sent(int rank, int nranks) const {
    if (collective == Collective::broadcast) return rank == root ? count : 0;
    const bool of_all = collective == Collective::reduce_scatter || collective == Collective::all_to_all;
    return of_all ? count * static_cast<std::uint64_t>(nranks) : count;
  }
  std::uint64_t received(int rank, int nranks) const {
    if (collective == Collective::reduce) return rank == root ? count : 0;
    const bool of_all = collective == Collective::all_gather || collective == Collective::all_to_all;
    return of_all ? count * static_cast<std::uint64_t>(nranks) : count;
  }
  // Element `index` of the output.
  std::uint64_t expected(int rank, int nranks, std::uint64_t index) const {
    const auto n = static_cast<std::uint32_t>(nranks);
    const std::uint64_t own = static_cast<std::uint64_t>(rank) * count;
    const auto from = [&](std::uint64_t source, std::uint64_t at) {
      return value_bits(pattern, static_cast<std::uint32_t>(source), n, at);
    };
    switch (collective) {
      case Collective::all_gather:
        return from(index / count, index % count);
      case Collective::broadcast:
        return from(static_cast<std::uint64_t>(root), index);
      case Collective::all_to_all:
        return from(index / count, own + index % count);
      case Collective::reduce_scatter:
        return expected_bits(pattern, n, own + index);
      default:
        return expected_bits(pattern, n, index);
    }
  }
  std::string to_string() const {
    std::ostringstream text;
    text << name_of(collective) << " of " << count << ' ' << name_of(pattern.type) << ' '
         << name_of(pattern.op) << ", root " << root << ", "
         << (options.protocol ? algorithm::name_of(*options.protocol) : "by route");
    if (options.grid != 0) text << ", grid " << options.grid;
    return text.str();
  }
};

// One rank's buffers of a case: where they lie, and images of them on the host.
class PlacedParts {
 public:
  // `number` chooses the places: offsets in elements, in place or not.
  PlacedParts(const Rank& rank, const PartsCase& one, std::uint64_t number) : rank_(rank), one_(one) {
    element_ = element_bytes(one.pattern.type);
    const auto salt = static_cast<std::uint32_t>(rank.rank);
    const std::uint64_t offsets = 16 / element_;
    sent_ = one.sent(rank.rank, rank.nranks) * element_;
    received_ = one.received(rank.rank, rank.nranks) * element_;
    send_ = rank.send + kGuardBytes + mixed(1, salt, number) % offsets * element_;
    recv_ = rank.recv + kGuardBytes + mixed(2, salt, number) % offsets * element_;
    in_place_ = sent_ != 0 && received_ != 0 && mixed(3, salt, number) % 2 == 0;
    const std::size_t own = static_cast<std::size_t>(rank.rank) * one.count * element_;
    if (in_place_ && one.collective == Collective::reduce_scatter) {
      recv_ = send_ + own;
    } else if (in_place_) {
      send_ = recv_ + (one.collective == Collective::all_gather ? own : 0);
    }
  }

  // Guards, input and poison, there when it returns. No kernel may be waiting.
  cudaError_t fill() {
    if (const auto error = put(recv_, received_, false); error != cudaSuccess) return error;
    if (const auto error = put(send_, sent_, true); error != cudaSuccess) return error;
    return cudaStreamSynchronize(rank_.stream);
  }
  Status call() const {
    const std::uint64_t factor = factor_bits(one_.pattern.type, static_cast<std::uint32_t>(rank_.rank));
    runtime::CollectiveCall call{one_.collective,
                                 sent_ != 0 ? send_ : nullptr,
                                 received_ != 0 ? recv_ : nullptr,
                                 one_.count,
                                 one_.pattern.type,
                                 ReduceOp::sum,
                                 one_.root};
    if (is_reduction(one_.collective)) {
      call.op = one_.pattern.op == ReduceOp::premul_sum ? Reduction::premul_sum(one_.pattern.type, &factor)
                                                        : Reduction(one_.pattern.op);
    }
    runtime::CallOptions options = one_.options;
    options.may_overlap = in_place_ && one_.collective == Collective::all_to_all;
    return rank_.comm->collective(call, rank_.stream, options);
  }
  // "" when all is as it must be. The stream is idle.
  std::string wrong() {
    std::vector<char> recv, send;
    if (!get(recv_, received_, recv) || !get(send_, sent_, send)) return "the buffers could not be read";
    for (std::uint64_t i = 0; i < received_ / element_; ++i) {
      std::uint64_t got = 0;
      std::memcpy(&got, &recv[kGuardBytes + i * element_], element_);
      const std::uint64_t expected = one_.expected(rank_.rank, rank_.nranks, i);
      if (got == expected) continue;
      std::ostringstream text;
      text << "rank " << rank_.rank << (in_place_ ? " in place" : "") << ": element " << i << " is "
           << std::hex << got << ", expected " << expected << std::dec << " (" << one_.to_string()
           << ", send offset " << (send_ - rank_.send) % 16 << ", recv offset " << (recv_ - rank_.recv) % 16
           << ')';
      return text.str();
    }
    if (received_ != 0 && !(in_place_ && one_.collective == Collective::reduce_scatter) && !guarded(recv))
      return "bytes around the output were written: " + one_.to_string();
    if (sent_ != 0 && !in_place_ && !guarded(send))
      return "bytes around the input were written: " + one_.to_string();
    for (std::uint64_t i = 0; !in_place_ && i < sent_ / element_; ++i) {
      std::uint64_t got = 0;
      std::memcpy(&got, &send[kGuardBytes + i * element_], element_);
      if (got != input(i)) return "the input was changed: " + one_.to_string();
    }
    return "";
  }

 private:
  std::uint64_t input(std::uint64_t i) const {
    return value_bits(one_.pattern, static_cast<std::uint32_t>(rank_.rank),
                      static_cast<std::uint32_t>(rank_.nranks), i);
  }
  cudaError_t put(char* at, std::size_t bytes, bool is_input) {
    if (bytes == 0) return cudaSuccess;
    // Of an input inside the output only the elements.
    const bool bare = is_input && in_place_;
    std::vector<char> image(bytes + 2 * kGuardBytes);
    for (std::uint32_t i = 0; i < kGuardBytes; ++i) {
      image[i] = static_cast<char>(guard_byte(i));
      image[kGuardBytes + bytes + i] = static_cast<char>(guard_byte(i));
    }
    for (std::uint64_t i = 0; i < bytes / element_; ++i) {
      const std::uint64_t bits = is_input ? input(i) : poison_bits(one_.pattern.type);
      std::memcpy(&image[kGuardBytes + i * element_], &bits, element_);
    }
    const std::size_t skipped = bare ? kGuardBytes : 0;
    return cudaMemcpyAsync(at - kGuardBytes + skipped, image.data() + skipped, image.size() - 2 * skipped,
                           cudaMemcpyHostToDevice, rank_.stream);
  }
  bool get(const char* at, std::size_t bytes, std::vector<char>& image) const {
    if (bytes == 0) return true;
    image.resize(bytes + 2 * kGuardBytes);
    return cudaMemcpyAsync(image.data(), at - kGuardBytes, image.size(), cudaMemcpyDeviceToHost,
                           rank_.stream) == cudaSuccess &&
           cudaStreamSynchronize(rank_.stream) == cudaSuccess;
  }
  static bool guarded(const std::vector<char>& image) {
    const std::size_t behind = image.size() - kGuardBytes;
    for (std::uint32_t i = 0; i < kGuardBytes; ++i) {
      const char wanted = static_cast<char>(guard_byte(i));
      if (image[i] != wanted || image[behind + i] != wanted) return false;
    }
    return true;
  }

  const Rank& rank_;
  const PartsCase& one_;
  std::size_t element_ = 1, sent_ = 0, received_ = 0;  // bytes
  char* send_ = nullptr;
  char* recv_ = nullptr;
  bool in_place_ = false;
};

}  // namespace nearlight::test
