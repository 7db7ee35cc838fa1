// Where the parts of a region lie: nothing shares a byte with anything else, and no size wraps.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::protocol {
namespace {

TEST(RegionLayout, NothingOverlaps) {
  for (int nranks = 1; nranks <= kMaxRanks; ++nranks) {
    const RegionLayout layout{.nranks = nranks, .slots = 32, .cells = 3, .packets = 5, .wide = 8, .sums = 4};
    const std::size_t stride = layout.region_bytes() + 4096;
    struct alignas(128) Line {
      char bytes[128];
    };
    std::vector<Line> memory(static_cast<std::size_t>(nranks) * stride / sizeof(Line) + 1);
    char* const base = memory[0].bytes;
    // Begin and end of each part of all ranks' regions.
    std::map<std::uintptr_t, std::uintptr_t> parts;
    const auto add = [&](const void* address, std::size_t bytes) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base);
      EXPECT_TRUE(parts.emplace(begin, begin + bytes).second) << "twice at " << begin;
    };
    const FlatRegion<exec::HostSpace> region(base, stride, 0, layout);
    for (int peer = 0; peer < nranks; ++peer) {
      for (int bank = 0; bank < kBanks; ++bank) {
        for (int source = 0; source < nranks; ++source) {
          add(&region.flag(peer, bank, source), kFlagStride);
          for (std::uint32_t slot = 0; slot < layout.slots; ++slot)
            add(&region.line(peer, bank, source, slot), 16);
          for (std::uint32_t cell = 0; cell < layout.cells; ++cell)
            add(&region.cell(peer, bank, source, cell), 16);
          for (std::uint32_t index = 0; index < layout.packets; ++index)
            add(&region.packet(peer, bank, source, index), 16);
          for (std::uint32_t line = 0; line < layout.wide; ++line)
            add(&region.wide(peer, bank, source, line), kWideBytes);
        }
        for (std::uint32_t line = 0; line < layout.sums; ++line)
          add(&region.sum(peer, bank, line), kWideBytes);
      }
    }
    std::uintptr_t end = 0;
    for (const auto& [begin, next] : parts) {
      EXPECT_GE(begin, end);
      const std::uintptr_t peer = begin / stride;
      EXPECT_LE(next, peer * stride + layout.region_bytes());
      end = next;
    }
    EXPECT_EQ(layout.region_bytes() % kFlagStride, 0u);
  }
}

TEST(RegionLayout, TheLargestSizesDoNotWrap) {
  const RegionLayout layout{
      .nranks = kMaxRanks, .slots = 1u << 20, .cells = (64u << 20) / 16, .packets = 1u << 20};
  const std::size_t least =
      std::size_t{2} * 8 * ((std::size_t{16} << 20) + (std::size_t{64} << 20) + (std::size_t{16} << 20));
  EXPECT_GE(layout.region_bytes(), least);
  EXPECT_LE(layout.region_bytes(), least + 4096);
  // The last cell of the last rank, as an address without memory behind it.
  const std::size_t stride = layout.region_bytes();
  const FlatRegion<exec::HostSpace> region(nullptr, stride, 0, layout);
  const auto last = reinterpret_cast<std::uintptr_t>(&region.packet(7, 1, 7, layout.packets - 1));
  EXPECT_EQ(last + 16, 7 * stride + layout.flags_bytes() + layout.lines_bytes() + layout.payload_bytes() +
                           layout.packets_bytes());
}

}  // namespace
}  // namespace nearlight::protocol
