// The state of GPU ranks, read while a kernel of theirs waits, and written down after a time-out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/dump_service.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// Sets a variable for the life of this object.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

class DumpGpu : public testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(OneGpu, DumpGpu, testing::Values(Setup{Memory::cuda_vmm, 1, 2}), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, DumpGpu, testing::Values(Setup{Memory::cuda_vmm, 2, 2}), setup_name);

TEST_P(DumpGpu, WhileAKernelWaits) {
  const Variable answer("NEARLIGHT_DUMP", "1");
  runtime::Options options = test_options();
  options.timeout = patient(8s);
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  runtime::CallOptions call;
  call.protocol = route::Protocol::ll;
  call.grid = 1;
  call.threads = 32;
  const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 8};
  group.run([&](Rank& rank) {
    for (int i = 0; i < 4; ++i) ASSERT_OK(rank.prepare_reduce_check(rank.work(pattern, 20, false), call));
  });
  group.expect_clean(4);
  Rank& first = group[0];
  ASSERT_CUDA(cudaSetDevice(first.device));
  ASSERT_OK(first.all_reduce(first.work(pattern, 20, false), call));  // rank 1 does not come
  std::this_thread::sleep_for(100ms);
  ASSERT_EQ(cudaStreamQuery(first.stream), cudaErrorNotReady);
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = runtime::ask_for_dumps(::getpid(), Deadline::after_ms(30'000));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(6s));
  EXPECT_EQ(cudaStreamQuery(first.stream), cudaErrorNotReady) << "the dump waited for the kernel";
  ASSERT_TRUE(texts.ok()) << texts.status().to_string();
  ASSERT_EQ(texts.value().size(), static_cast<std::size_t>(group.nranks()));
  std::string of_first;
  for (const std::string& text : texts.value()) {
    EXPECT_THAT(text, HasSubstr("status: ok"));
    EXPECT_THAT(text, Not(HasSubstr("its memory was not read")));
    EXPECT_THAT(text, HasSubstr("#4 all_reduce of 20 float, sum, one_shot ll: done"));
    if (text.find("rank 0 of") == 0) of_first = text;
  }
  EXPECT_THAT(of_first, HasSubstr("#5 all_reduce of 20 float"));
  EXPECT_THAT(of_first, HasSubstr("from rank 1, bank 0: flag 0; line of epoch 4 and 4"));
  EXPECT_THAT(of_first, HasSubstr("from rank 1, bank 1: flag 0; line of epoch 3 and 3"));
  first.comm->abort();
  EXPECT_CUDA(cudaStreamSynchronize(first.stream));
}

// Nobody asks the communicator; its own thread finds the time-out.
TEST_P(DumpGpu, ATimeOutIsWrittenDownByItself) {
  const std::string folder = testing::TempDir() + "nearlight-dumps-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const Variable where("NEARLIGHT_DUMP_DIR", folder);
  runtime::Options options = test_options();
  options.timeout = patient(200ms);
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  Rank& first = group[0];
  ASSERT_CUDA(cudaSetDevice(first.device));
  const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 8};
  ASSERT_OK(first.all_reduce(first.work(pattern, 20, false)));
  ASSERT_CUDA(cudaStreamSynchronize(first.stream));
  std::string text;
  for (int i = 0; i < 200 && text.find("last calls") == std::string::npos; ++i) {
    std::this_thread::sleep_for(50ms);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path());
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
  }
  EXPECT_THAT(text, HasSubstr("status: timeout: all_reduce on rank 0: nothing from rank 1"));
  EXPECT_THAT(text, HasSubstr("fault record: time-out of rank 0 that waited for rank 1"));
  EXPECT_THAT(text, HasSubstr("FAILED"));
  EXPECT_THAT(text, Not(HasSubstr("its memory was not read")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nearlight::test
