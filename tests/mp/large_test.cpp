// More than 2^31 elements, and more than 2^32 bytes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 37;  // bf16: 4 GiB and 74 bytes
constexpr std::size_t kWindow = std::size_t{1} << 20;

// An address range of many megabytes with little memory behind it: the same pages again and again, but for a
// few places that have pages of their own, so that what belongs there is found nowhere else.
class Folded {
 public:
  // `own`: the indices of the windows with pages of their own.
  Folded(std::size_t bytes, std::initializer_list<std::size_t> own)
      : windows_((bytes + kWindow - 1) / kWindow) {
    const int fd = ::memfd_create("folded", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(kWindow * (own.size() + 1))) != 0) return;
    void* const range =
        ::mmap(nullptr, windows_ * kWindow, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      base_ = static_cast<char*>(range);
      std::size_t next_own = 1;
      for (std::size_t window = 0; window < windows_; ++window) {
        const bool special = std::find(own.begin(), own.end(), window) != own.end();
        const std::size_t page = special ? next_own++ : 0;
        if (::mmap(base_ + window * kWindow, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   static_cast<off_t>(page * kWindow)) == MAP_FAILED) {
          ::munmap(range, windows_ * kWindow);
          base_ = nullptr;
          break;
        }
      }
    }
    ::close(fd);
  }
  Folded(const Folded&) = delete;
  ~Folded() {
    if (base_ != nullptr) ::munmap(base_, windows_ * kWindow);
  }
  char* data() const { return base_; }

 private:
  char* base_ = nullptr;
  std::size_t windows_;
};

std::uint64_t bf16(double value) { return round_to(DataType::bf16, value); }

// Within a window, by index; the windows around the places where 32-bit numbers overflow have other values.
double value_at(std::uint64_t window, bool special, int rank, std::uint64_t index_in_window) {
  return static_cast<double>(index_in_window % 13 + static_cast<std::uint64_t>(rank) * 16 +
                             (special ? 50 + window % 7 : 0));
}

TEST(Large, MoreElementsThan32BitsCount) {
  constexpr std::size_t kElements = kWindow / 2;
  // Elements 2^30 (byte 2^31), 2^31 (byte 2^32) and the last ones lie in windows of their own; so does the
  // first.
  constexpr std::uint64_t kLast = (kCount * 2 - 1) / kWindow;
  const std::initializer_list<std::size_t> own = {0, 2047, 2048, 4095, kLast};
  ASSERT_EQ(kLast, 4096u);
  const auto problems = run_communicators(
      Kind::threads, 2, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        const Folded send(kCount * 2, own), recv(kCount * 2, own);
        if (send.data() == nullptr || recv.data() == nullptr) return trouble.add("no room to map");
        const auto fill = [&](std::uint64_t window, bool special) {
          for (std::uint64_t i = 0; i < kElements; ++i) {
            store_bits(DataType::bf16, send.data() + window * kWindow, i,
                       bf16(value_at(window, special, comm.rank(), i)));
            store_bits(DataType::bf16, recv.data() + window * kWindow, i, 0xabcd);
          }
        };
        fill(1, false);
        for (const std::size_t window : own) fill(window, true);
        const Status status =
            comm.all_reduce(send.data(), recv.data(), kCount, DataType::bf16, ReduceOp::sum, nullptr);
        if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
        const auto check = [&](std::uint64_t window, bool special) {
          for (std::uint64_t i = 0; i < kElements; ++i) {
            const bool inside = window * kElements + i < kCount;
            const double sum = value_at(window, special, 0, i) + value_at(window, special, 1, i);
            const std::uint64_t expected = inside ? bf16(sum) : 0xabcd;
            const std::uint64_t got = load_bits(DataType::bf16, recv.data() + window * kWindow, i);
            if (got != expected) {
              return trouble.add("window %llu, element %llu: %04llx, expected %04llx",
                                 static_cast<unsigned long long>(window), static_cast<unsigned long long>(i),
                                 static_cast<unsigned long long>(got),
                                 static_cast<unsigned long long>(expected));
            }
          }
        };
        check(1, false);
        for (const std::size_t window : own) check(window, true);
      });
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
