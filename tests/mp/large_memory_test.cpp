// More than 2^31 elements with all of their memory: 4 GiB a rank, in place.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>

#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 37;  // bf16: 4 GiB and 74 bytes
constexpr std::size_t kBytes = kCount * 2;

std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  }
  return 0;
}

// Differs from what lies 2^30, 2^31 or 2^32 bytes away. Whole numbers up to 127.
std::uint32_t number_at(int rank, std::uint64_t index) {
  return static_cast<std::uint32_t>((index + index / 12'289 + static_cast<std::uint64_t>(rank) * 5) % 128);
}

TEST(LargeMemory, InPlaceBf16) {
  if (available_bytes() < 2 * kBytes + (std::size_t{1} << 30)) GTEST_SKIP() << "needs 10 GB of free memory";
  std::uint16_t bits[256];
  for (int i = 0; i < 256; ++i) bits[i] = static_cast<std::uint16_t>(round_to(DataType::bf16, i));
  const auto problems = run_communicators(
      Kind::threads, 2, patient(), [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
        void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return trouble.add("no memory");
        auto* const data = static_cast<std::uint16_t*>(memory);
        for (std::uint64_t i = 0; i < kCount; ++i) data[i] = bits[number_at(comm.rank(), i)];
        meet(exchange, trouble);
        const Status status = comm.all_reduce(data, data, kCount, DataType::bf16, ReduceOp::sum, nullptr);
        if (!status.ok()) trouble.add("%s", status.to_string().c_str());
        for (std::uint64_t i = 0; i < kCount && trouble.none(); ++i) {
          const std::uint16_t expected = bits[number_at(0, i) + number_at(1, i)];
          if (data[i] != expected)
            trouble.add("element %llu: %04x, expected %04x", static_cast<unsigned long long>(i), data[i],
                        expected);
        }
        ::munmap(memory, kBytes);
      });
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
