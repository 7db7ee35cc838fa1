// The GPU's conversions, compared with the definition of each format: every code, every tie and its
// neighbours, and many floats. The CPU's are compared with the same reference, so both have the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/gpu/conversions.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& from) : OnDevice(from.size()) {
    EXPECT_CUDA(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { EXPECT_CUDA(cudaFree(data_)); }
  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> all(count_);
    EXPECT_CUDA(cudaMemcpy(all.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return all;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

class ConversionsGpu : public testing::TestWithParam<DataType> {};

TEST_P(ConversionsGpu, EveryCodeIsWidenedExactly) {
  const DataType type = GetParam();
  std::vector<std::uint16_t> codes(std::size_t{1} << 8 * size_of(type));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  const OnDevice<std::uint16_t> in(codes);
  const OnDevice<std::uint32_t> out(codes.size());
  ASSERT_CUDA(widen_on_gpu(type, in.get(), out.get(), codes.size()));
  const auto wide = out.read();
  for (std::size_t code = 0; code < codes.size(); ++code) {
    const double expected = value_of(type, code);
    if (expected != expected) {
      ASSERT_TRUE(std::isnan(std::bit_cast<float>(wide[code]))) << std::hex << code;
    } else {
      ASSERT_EQ(wide[code], std::bit_cast<std::uint32_t>(static_cast<float>(expected))) << std::hex << code;
    }
  }
}

TEST_P(ConversionsGpu, EveryTieAndManyFloatsAreRounded) {
  const DataType type = GetParam();
  std::vector<std::uint32_t> wide;
  const auto add = [&](float value) { wide.push_back(std::bit_cast<std::uint32_t>(value)); };
  const std::uint64_t codes = std::uint64_t{1} << 8 * size_of(type);
  for (std::uint64_t code = 0; code < codes; ++code) {
    const double here = value_of(type, code), next = value_of(type, (code + 1) % codes);
    add(static_cast<float>(here));
    const double half = here + (next - here) / 2;
    if (!std::isfinite(half)) continue;
    const auto tie = static_cast<float>(half);
    for (const float value : {tie, std::nextafter(tie, HUGE_VALF), std::nextafter(tie, -HUGE_VALF)})
      add(value);
  }
  // The ends of the ranges, and NaNs of all kinds.
  for (const std::uint32_t bits :
       {0x00000001u, 0x007fffffu, 0x00800000u, 0x477fefffu, 0x477ff000u, 0x43e80000u, 0x43e80001u,
        0x47700000u, 0x47700001u, 0x7f7f8000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fbfffffu,
        0x7fc00000u, 0x7fffffffu}) {
    wide.push_back(bits);
    wide.push_back(bits | 0x80000000u);
  }
  std::mt19937 random(static_cast<std::uint32_t>(type));
  for (int i = 0; i < scaled(2'000'000); ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    wide.push_back(i % 2 == 0 ? bits : (bits & 0x807fffffu) | (127 - 26 + (bits >> 23) % 44) << 23);
  }
  wide.resize(wide.size() / 8 * 8);
  const OnDevice<std::uint32_t> in(wide);
  const OnDevice<std::uint16_t> out(wide.size());
  ASSERT_CUDA(narrow_on_gpu(type, in.get(), out.get(), wide.size()));
  const auto narrowed = out.read();
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto value = std::bit_cast<float>(wide[i]);
    ASSERT_EQ(narrowed[i], round_to(type, static_cast<double>(value))) << std::hexfloat << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConversionsGpu,
                         testing::Values(DataType::bf16, DataType::f16, DataType::f8e4m3, DataType::f8e5m2),
                         [](const auto& chosen) { return std::string(name_of(chosen.param)); });

}  // namespace
}  // namespace nearlight::test
