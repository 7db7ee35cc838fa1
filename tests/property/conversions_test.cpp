// The conversions between f32 and the floats of 8 and 16 bits, compared with the definition of each format.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/reduce.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

template <class T>
struct TypeOf;
template <>
struct TypeOf<Bf16> {
  static constexpr DataType value = DataType::bf16;
};
template <>
struct TypeOf<F16> {
  static constexpr DataType value = DataType::f16;
};
template <>
struct TypeOf<F8e4m3> {
  static constexpr DataType value = DataType::f8e4m3;
};
template <>
struct TypeOf<F8e5m2> {
  static constexpr DataType value = DataType::f8e5m2;
};

template <class T>
class SmallFloats : public testing::Test {
 protected:
  static constexpr DataType kType = TypeOf<T>::value;
  using L = algorithm::Lanes<exec::HostSpace, T>;
  static constexpr std::uint64_t kCodes = std::uint64_t{1} << 8 * sizeof(T);

  // `code` in each place of a pack, other codes beside it.
  static void expect_widened(std::uint64_t code) {
    for (int place = 0; place < L::kPerPack; ++place) {
      const int shift = 8 * static_cast<int>(sizeof(T)) * place;
      const exec::Pack pack = (0x5a3c1187c3e90f24u & ~((kCodes - 1) << shift)) | code << shift;
      float wide[L::kPerPack];
      L::widen(pack, wide);
      const double expected = value_of(kType, code);
      if (expected != expected) {
        ASSERT_TRUE(std::isnan(wide[place])) << std::hex << code;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[place]),
                  std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
            << std::hex << code << " in place " << place;
      }
    }
  }

  static void expect_narrowed(float value) {
    const std::uint64_t expected = round_to(kType, static_cast<double>(value));
    for (int place = 0; place < L::kPerPack; ++place) {
      float wide[L::kPerPack];
      for (float& other : wide) other = 1;
      wide[place] = value;
      const exec::Pack pack = L::narrow(wide);
      const std::uint64_t one = round_to(kType, 1);
      for (int i = 0; i < L::kPerPack; ++i) {
        const std::uint64_t got = pack >> 8 * static_cast<int>(sizeof(T)) * i & (kCodes - 1);
        ASSERT_EQ(got, i == place ? expected : one) << std::hexfloat << value << " in place " << place;
      }
    }
  }
};

using Types = testing::Types<Bf16, F16, F8e4m3, F8e5m2>;
class Names {
 public:
  template <class T>
  static std::string GetName(int) {
    return name_of(TypeOf<T>::value);
  }
};
TYPED_TEST_SUITE(SmallFloats, Types, Names);

TYPED_TEST(SmallFloats, EveryCodeIsWidenedExactly) {
  for (std::uint64_t code = 0; code < TestFixture::kCodes; ++code) TestFixture::expect_widened(code);
}

// Every code to f32 and back; every point half way between two, and the floats next to it on both sides.
TYPED_TEST(SmallFloats, EveryCodeAndEveryTieIsRounded) {
  const DataType type = TestFixture::kType;
  for (std::uint64_t code = 0; code < TestFixture::kCodes; ++code) {
    const double here = value_of(type, code), next = value_of(type, (code + 1) % TestFixture::kCodes);
    TestFixture::expect_narrowed(static_cast<float>(here));
    const double half = here + (next - here) / 2;
    if (!std::isfinite(half)) continue;
    const auto tie = static_cast<float>(half);
    for (const float value : {tie, std::nextafter(tie, HUGE_VALF), std::nextafter(tie, -HUGE_VALF)}) {
      TestFixture::expect_narrowed(value);
    }
  }
}

TYPED_TEST(SmallFloats, SpecialAndLargeFloatsAreRounded) {
  for (const std::uint32_t magnitude :
       {0x00000000u, 0x00000001u, 0x007fffffu, 0x00800000u, 0x33000000u, 0x33000001u, 0x387fffffu,
        0x477fefffu, 0x477ff000u, 0x43e00000u, 0x43e80000u, 0x43e7ffffu, 0x43e80001u, 0x47600000u,
        0x47700000u, 0x476fffffu, 0x47700001u, 0x7f7f7fffu, 0x7f7f8000u, 0x7f7fffffu, 0x7f800000u,
        0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu}) {
    TestFixture::expect_narrowed(std::bit_cast<float>(magnitude));
    TestFixture::expect_narrowed(std::bit_cast<float>(magnitude | 0x80000000u));
  }
}

// Floats of every exponent, both signs.
TYPED_TEST(SmallFloats, RandomFloatsAreRounded) {
  std::mt19937 random(static_cast<std::uint32_t>(TestFixture::kType));
  for (int i = 0; i < 400'000 / kSlowDown; ++i) {
    TestFixture::expect_narrowed(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    // Within the range of all of them, where a random exponent seldom falls.
    const auto near_one = static_cast<std::uint32_t>(random());
    TestFixture::expect_narrowed(
        std::bit_cast<float>((near_one & 0x807fffffu) | (127 - 26 + (near_one >> 23) % 44) << 23));
  }
}

}  // namespace
}  // namespace nearlight::test
