#include "cli/peers/torch/rank_library.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "bootstrap/process_group.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/command_line.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/process_launch.hpp"
#include "cli/program.hpp"

namespace nearlight::peers {

namespace {

constexpr std::chrono::seconds kMeetLimit{120};

// A peer behind the C interface.
class ForeignContender final : public bench::Contender {
 public:
  explicit ForeignContender(const nearlightBenchPeer& peer) : peer_(peer) {}

  const char* impl() const override { return peer_.impl; }
  Status all_reduce(const bench::Operation& operation, runtime::Stream stream) override {
    char error[256] = {};
    if (peer_.all_reduce(peer_.self, operation.send, operation.recv, operation.count,
                         static_cast<int>(operation.type), static_cast<int>(operation.op.op), stream, error,
                         sizeof error) == 0) {
      return {};
    }
    return failure(Code::system_error, "%s", error);
  }
  Result<bench::Choice> choice(std::size_t, DataType, ReduceOp, cli::Mode) const override {
    return bench::Choice{"", "", 0, "it does not tell", ""};
  }
  int roundings() const override { return peer_.roundings; }
  bool in_place_only() const override { return peer_.in_place_only != 0; }
  std::string settings() const override { return peer_.settings; }

  Result<bench::Buffers> own_buffers(std::size_t bytes) override {
    void *send = nullptr, *recv = nullptr;
    char error[256] = {};
    if (peer_.buffers(peer_.self, bytes, &send, &recv, error, sizeof error) != 0 || send == nullptr ||
        recv == nullptr) {
      return failure(Code::system_error, "%s: buffers of %zu bytes: %s", peer_.impl, bytes, error);
    }
    return bench::Buffers{static_cast<char*>(send), static_cast<char*>(recv)};
  }

 private:
  nearlightBenchPeer peer_;
};

int host_rank(const bench::BenchOptions& options, int rank, int nranks, const char* key,
              const bench::MakePeers& make_peers) {
  const auto run = [&]() -> Result<int> {
    const Deadline deadline = Deadline::after(kMeetLimit);
    NL_TRY_ASSIGN(const auto exchange, bootstrap::join_process_group({rank, nranks, key}, deadline));
    bench::Setting setting;
    Status probed;
    if (rank == 0) {
      auto own = bench::host_setting(nranks);
      probed = own.status();
      if (own.ok()) setting = *own;
    }
    NL_TRY(agree(*exchange, probed, deadline));
    return bench::bench_host_rank(*exchange, options, setting, make_peers);
  };
  const auto code = run();
  return code.ok() ? *code : bench::report_failure(code.status());
}

}  // namespace

}  // namespace nearlight::peers

int nearlightMain(int argc, char** argv) { return nearlight::cli::program(argc, argv); }

int nearlightBenchRank(int argc, const char* const* argv, int rank, int nranks, const char* key,
                       const int* devices, int attach, const nearlightBenchPeer* peers, int npeers) {
  using namespace nearlight;
  const auto invocation = cli::parse_command_line({argv, argv + argc});
  const bench::BenchOptions* const options =
      invocation.ok() ? std::get_if<bench::BenchOptions>(&*invocation) : nullptr;
  if (options == nullptr) {
    std::fprintf(stderr, "nearlight: %s\n",
                 invocation.ok() ? "only `bench` runs here" : invocation.status().text().c_str());
    return cli::kExitUsage;
  }
  const auto make_peers = [&](Exchange&) -> Result<std::vector<std::unique_ptr<bench::Contender>>> {
    std::vector<std::unique_ptr<bench::Contender>> made;
    for (int i = 0; i < npeers; ++i) made.push_back(std::make_unique<peers::ForeignContender>(peers[i]));
    return made;
  };
  const int code =
      options->backend == bench::Backend::host
          ? peers::host_rank(*options, rank, nranks, key, make_peers)
          : peers::bench_process(*options, {devices, devices + nranks}, attach != 0, rank, key, make_peers);
  // Whoever loaded this may end without it.
  std::fflush(nullptr);
  return code;
}
