// Every entry point with arguments that cannot be: the code, the name of the argument in the text, nothing
// written, and the communicator goes on.
#include <climits>
#include <cstring>
#include <limits>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();

nearlightComm_t fake_handle(std::uintptr_t bits) { return reinterpret_cast<nearlightComm_t>(bits); }

TEST(ApiArguments, AllReduceNamesThemAndWritesNothing) {
  const HostGroup group(1);
  alignas(64) char memory[512];
  std::memset(memory, 0x77, sizeof memory);
  char* const a = memory + 128;
  char* const b = memory + 256;
  struct Bad {
    const void* send;
    void* recv;
    std::size_t count;
    int type, op;
    nearlightResult_t code;
    const char* named;
  };
  const auto bad_argument = nearlightInvalidArgument;
  const int f32 = nearlightFloat32, sum = nearlightSum;
  const Bad all_bad[] = {
      {nullptr, b, 4, f32, sum, bad_argument, "send is null"},
      {a, nullptr, 4, f32, sum, bad_argument, "recv is null"},
      {a, b, 4, 12, sum, bad_argument, "type: 12"},
      {a, b, 4, -1, sum, bad_argument, "type: -1"},
      {a, b, 4, INT_MAX, sum, bad_argument, "type: 2147483647"},
      {a, b, 0, 99, sum, bad_argument, "type: 99"},
      {a, b, 4, f32, 5, bad_argument, "op: 5"},
      {a, b, 4, f32, -1, bad_argument, "op: -1"},
      {a, b, 0, f32, 6, bad_argument, "op: 6"},
      {a + 1, b, 4, f32, sum, bad_argument, "send"},
      {a, b + 2, 4, f32, sum, bad_argument, "recv"},
      {a, a + 4, 4, f32, sum, bad_argument, "overlap"},
      {a, b, kHuge, f32, sum, bad_argument, "count"},
      {a, b, kHuge / 4 + 2, f32, sum, bad_argument, "count"},
      {a, b, kHuge / 8 + 1, f32, sum, bad_argument, "count"},
  };
  for (const Bad& bad : all_bad) {
    expect_error(nearlightAllReduce(bad.send, bad.recv, bad.count, static_cast<nearlightDataType_t>(bad.type),
                                    static_cast<nearlightRedOp_t>(bad.op), group[0], nullptr),
                 bad.code, {"nearlightAllReduce on rank 0", bad.named});
    for (const char byte : memory) ASSERT_EQ(byte, 0x77) << bad.named;
  }
  int not_a_stream = 0;
  expect_error(nearlightAllReduce(a, b, 4, nearlightFloat32, nearlightSum, group[0],
                                  reinterpret_cast<CUstream_st*>(&not_a_stream)),
               nearlightInvalidArgument, {"stream"});
  for (const char byte : memory) ASSERT_EQ(byte, 0x77);
  EXPECT_EQ(nearlightAllReduce(nullptr, nullptr, 0, nearlightFloat32, nearlightSum, group[0], nullptr),
            nearlightSuccess);
  EXPECT_EQ(nearlightAllReduce(a, b, 4, nearlightFloat32, nearlightSum, group[0], nullptr), nearlightSuccess);
}

TEST(ApiArguments, NothingIsALiveCommunicator) {
  float value = 1;
  int number = 77;
  nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  nearlightRedOp_t op = nearlightSum;
  int object = 0;
  for (const nearlightComm_t comm :
       {fake_handle(0), fake_handle(1), fake_handle(0x10001 + 0x10000), fake_handle(0x1ffff),
        fake_handle(UINTPTR_MAX), reinterpret_cast<nearlightComm_t>(&object)}) {
    const char* const word = comm == nullptr ? "comm is NULL" : "no live communicator";
    expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
                 nearlightInvalidArgument, {"nearlightAllReduce: ", word});
    expect_error(nearlightCommRank(comm, &number), nearlightInvalidArgument, {"nearlightCommRank", word});
    expect_error(nearlightCommCount(comm, &number), nearlightInvalidArgument, {"nearlightCommCount", word});
    expect_error(nearlightCommGetInfo(comm, &info), nearlightInvalidArgument, {"nearlightCommGetInfo", word});
    expect_error(nearlightCommGetStatus(comm, &status), nearlightInvalidArgument,
                 {"nearlightCommGetStatus", word});
    expect_error(
        nearlightExplain(comm, nearlightCollectiveAllReduce, 1, nearlightFloat32, nearlightSum, &route),
        nearlightInvalidArgument, {"nearlightExplain", word});
    expect_error(nearlightCommAbort(comm), nearlightInvalidArgument, {"nearlightCommAbort", word});
    expect_error(
        nearlightRedOpCreatePreMulSum(&op, &value, nearlightFloat32, nearlightScalarHostImmediate, comm),
        nearlightInvalidArgument, {"nearlightRedOpCreatePreMulSum", word});
    expect_error(nearlightRedOpDestroy(op, comm), nearlightInvalidArgument, {"nearlightRedOpDestroy", word});
    if (comm != nullptr) {
      expect_error(nearlightCommDestroy(comm), nearlightInvalidArgument, {"nearlightCommDestroy", word});
    }
  }
  EXPECT_EQ(nearlightCommDestroy(nullptr), nearlightSuccess);
  EXPECT_EQ(number, 77);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(info.backend, nullptr);
  EXPECT_EQ(route.reason, nullptr);
}

TEST(ApiArguments, NullOutputs) {
  const HostGroup group(1);
  float scalar = 2;
  expect_error(nearlightGetVersion(nullptr), nearlightInvalidArgument,
               {"nearlightGetVersion: version is NULL"});
  expect_error(nearlightCommRank(group[0], nullptr), nearlightInvalidArgument, {"rank is NULL"});
  expect_error(nearlightCommCount(group[0], nullptr), nearlightInvalidArgument, {"nranks is NULL"});
  expect_error(nearlightCommGetInfo(group[0], nullptr), nearlightInvalidArgument, {"info is NULL"});
  expect_error(nearlightCommGetStatus(group[0], nullptr), nearlightInvalidArgument, {"status is NULL"});
  expect_error(
      nearlightExplain(group[0], nearlightCollectiveAllReduce, 1, nearlightFloat32, nearlightSum, nullptr),
      nearlightInvalidArgument, {"route is NULL"});
  expect_error(nearlightCommCreateHostGroup(nullptr, 1, nullptr), nearlightInvalidArgument,
               {"comms is NULL"});
  expect_error(nearlightCommCreateCudaGroup(nullptr, 1, nullptr, nullptr), nearlightInvalidArgument,
               {"comms is NULL"});
  expect_error(nearlightCommCreateHost(nullptr, 0, 1, "k", nullptr), nearlightInvalidArgument,
               {"comm is NULL"});
  expect_error(nearlightCommCreateCuda(nullptr, 0, 0, 1, "k", nullptr), nearlightInvalidArgument,
               {"comm is NULL"});
  expect_error(nearlightCommAttachNccl(nullptr, nullptr, nullptr), nearlightInvalidArgument,
               {"comm is NULL"});
  expect_error(nearlightRedOpCreatePreMulSum(nullptr, &scalar, nearlightFloat32, nearlightScalarHostImmediate,
                                             group[0]),
               nearlightInvalidArgument, {"op is NULL"});
}

TEST(ApiArguments, Creation) {
  nearlightComm_t comm = fake_handle(77);
  const int device = 0;
  for (const int nranks : {0, -1, -5, 9, INT_MAX}) {
    const std::string named = "nranks: " + std::to_string(nranks);
    expect_error(nearlightCommCreateHostGroup(&comm, nranks, nullptr), nearlightInvalidArgument, {named});
    expect_error(nearlightCommCreateCudaGroup(&comm, nranks, &device, nullptr), nearlightInvalidArgument,
                 {named});
  }
  expect_error(nearlightCommCreateCudaGroup(&comm, 1, nullptr, nullptr), nearlightInvalidArgument,
               {"devices is NULL"});
  expect_error(nearlightCommAttachNccl(&comm, nullptr, nullptr), nearlightInvalidArgument, {"nccl is NULL"});
  struct BadPlace {
    int rank, nranks;
    std::string key;
    const char* named;
  };
  const BadPlace all_bad[] = {
      {2, 2, "k", "rank: 2"},
      {-2, 2, "k", "rank: -2"},
      {-1, 2, "k", "rank is -1 and nranks is 2"},
      {0, -1, "k", "rank is 0 and nranks is -1"},
      {0, 9, "k", "nranks: 9"},
      {0, 0, "k", "nranks: 0"},
      {0, 2, "", "key is empty"},
      {0, 2, std::string(201, 'k'), "key: 201 bytes"},
      {0, 2, "a\nb", "key: has a control character"},
  };
  for (const BadPlace& bad : all_bad) {
    expect_error(nearlightCommCreateHost(&comm, bad.rank, bad.nranks, bad.key.c_str(), nullptr),
                 nearlightInvalidArgument, {"nearlightCommCreateHost", bad.named});
    const nearlightResult_t on_gpu =
        nearlightCommCreateCuda(&comm, 0, bad.rank, bad.nranks, bad.key.c_str(), nullptr);
    // Without CUDA that is said first.
    if (on_gpu == nearlightUnsupported) continue;
    expect_error(on_gpu, nearlightInvalidArgument, {"nearlightCommCreateCuda", bad.named});
  }
  expect_error(nearlightCommCreateCuda(&comm, -1, 0, 1, "k", nullptr), nearlightInvalidArgument,
               {"device: -1"});
  EXPECT_EQ(comm, fake_handle(77));
}

TEST(ApiArguments, Configuration) {
  nearlightComm_t comms[2] = {fake_handle(77), fake_handle(78)};
  const auto refused = [&](const char* named, const std::function<void(nearlightConfig_t&)>& change) {
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    change(config);
    expect_error(nearlightCommCreateHostGroup(comms, 2, &config), nearlightInvalidArgument, {named});
  };
  refused("config->size", [](auto& c) { c.size = 0; });
  refused("config->size", [](auto& c) { c.size = offsetof(nearlightConfig_t, packets) - 1; });
  refused("config->size", [](auto& c) { c.size = kHuge; });
  refused("config->timeout_ms", [](auto& c) { c.timeout_ms = -1; });
  refused("timeout", [](auto& c) { c.timeout_ms = std::numeric_limits<std::int64_t>::max(); });
  refused("config->create_timeout_ms", [](auto& c) { c.create_timeout_ms = -7; });
  refused("create_timeout", [](auto& c) { c.create_timeout_ms = std::numeric_limits<std::int64_t>::max(); });
  nearlightConfig_t endless = NEARLIGHT_CONFIG_INITIALIZER;
  endless.create_timeout_ms = std::numeric_limits<std::int64_t>::max();
  expect_error(nearlightCommCreateHost(comms, 0, 1, "key", &endless), nearlightInvalidArgument,
               {"create_timeout"});
  refused("config->check", [](auto& c) { c.check = 2; });
  refused("config->check", [](auto& c) { c.check = -2; });
  refused("regions", [](auto& c) { c.regions = 1025; });
  refused("slots", [](auto& c) { c.slots = 33; });
  refused("chunk_bytes", [](auto& c) { c.chunk_bytes = 24; });
  refused("packets", [](auto& c) { c.packets = (1u << 20) + 1; });
  refused("max_ctas", [](auto& c) { c.max_ctas = 1025; });
  refused("max_ctas: 17 is more than the 16 regions", [](auto& c) {
    c.regions = 16;
    c.max_ctas = 17;
  });
  refused("config->deterministic", [](auto& c) { c.deterministic = 2; });
  refused("config->deterministic", [](auto& c) { c.deterministic = -2; });
  refused("config->early_launch", [](auto& c) { c.early_launch = 2; });
  refused("config->early_launch", [](auto& c) { c.early_launch = -2; });
  refused("config->reserved", [](auto& c) { c.reserved = 1; });
  refused("lines", [](auto& c) { c.lines = 6; });
  refused("lines", [](auto& c) { c.lines = (1u << 17) + 4; });
  EXPECT_EQ(comms[0], fake_handle(77));
  EXPECT_EQ(comms[1], fake_handle(78));
}

// Programs that were built before there were packets, and before there were lines.
TEST(ApiArguments, AnEarlierConfiguration) {
  for (const std::size_t size :
       {offsetof(nearlightConfig_t, packets), offsetof(nearlightConfig_t, deterministic)}) {
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.size = size;
    // What lies behind it is another thing's.
    std::memset(reinterpret_cast<char*>(&config) + size, 0xff, sizeof config - size);
    nearlightComm_t comms[2] = {};
    ASSERT_EQ(nearlightCommCreateHostGroup(comms, 2, &config), nearlightSuccess) << nearlightGetLastError();
    for (const nearlightComm_t comm : comms) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
  }
}

TEST(ApiArguments, Explain) {
  const HostGroup group(2);
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  const auto all_reduce = nearlightCollectiveAllReduce;
  expect_error(nearlightExplain(group[0], static_cast<nearlightCollective_t>(0), 1, nearlightFloat32,
                                nearlightSum, &route),
               nearlightInvalidArgument, {"collective: 0"});
  expect_error(
      nearlightExplain(group[0], all_reduce, 1, static_cast<nearlightDataType_t>(50), nearlightSum, &route),
      nearlightInvalidArgument, {"type: 50"});
  expect_error(
      nearlightExplain(group[0], all_reduce, 1, nearlightFloat32, static_cast<nearlightRedOp_t>(50), &route),
      nearlightInvalidArgument, {"op: 50"});
  expect_error(nearlightExplain(group[0], all_reduce, kHuge / 2, nearlightFloat32, nearlightSum, &route),
               nearlightInvalidArgument, {"count"});
  route.size = 8;
  expect_error(nearlightExplain(group[0], all_reduce, 1, nearlightFloat32, nearlightSum, &route),
               nearlightInvalidArgument, {"route->size is 8"});
  EXPECT_EQ(route.reason, nullptr);
}

TEST(ApiArguments, Operators) {
  const HostGroup group(1);
  nearlightRedOp_t op = nearlightMin;
  const float scalar = 2;
  const auto create = [&](const void* from, nearlightDataType_t type, int residence) {
    return nearlightRedOpCreatePreMulSum(&op, from, type, static_cast<nearlightScalarResidence_t>(residence),
                                         group[0]);
  };
  expect_error(create(nullptr, nearlightFloat32, 1), nearlightInvalidArgument, {"scalar is NULL"});
  expect_error(create(&scalar, static_cast<nearlightDataType_t>(44), 1), nearlightInvalidArgument,
               {"type: 44"});
  expect_error(create(&scalar, nearlightFloat32, 2), nearlightInvalidArgument, {"residence: 2"});
  expect_error(nearlightRedOpDestroy(nearlightSum, group[0]), nearlightInvalidArgument, {"op: 0"});
  expect_error(nearlightRedOpDestroy(static_cast<nearlightRedOp_t>(1000), group[0]), nearlightInvalidArgument,
               {"op: 1000"});
  EXPECT_EQ(op, nearlightMin);
}

}  // namespace
}  // namespace nearlight::test
