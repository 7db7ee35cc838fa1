#include "cli/bench/nearlight_contender.hpp"

#include <string>
#include <utility>

#include "cli/results.hpp"
#include "runtime/kernel_loop.hpp"

namespace nearlight::bench {

namespace {

// Samples at the start of a loop inside a kernel that do not count: in them the ranks catch up with each
// other.
constexpr std::uint32_t kCatchUp = 8;

class NearlightContender final : public Contender {
 public:
  NearlightContender(std::unique_ptr<runtime::Communicator> communicator, const runtime::CallOptions& options,
                     std::optional<std::uint32_t> sm, bool names_protocol)
      : communicator_(std::move(communicator)), options_(options), sm_(sm), impl_(cli::kOwnImpl) {
    if (names_protocol && options.protocol) impl_ += std::string("_") + algorithm::name_of(*options.protocol);
  }

  const char* impl() const override { return impl_.c_str(); }

  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    return communicator_->all_reduce(operation.send, operation.recv, operation.count, operation.type,
                                     operation.op, stream, options_);
  }

  Status failed() const override { return communicator_->status(); }
  void abandon() override { communicator_->abort(); }

  Choice choice(std::size_t count, DataType type, ReduceOp op) const override {
    const route::Route route = communicator_->explain_all_reduce(count, type, op);
    Choice choice{algorithm::name_of(route.algorithm), algorithm::name_of(route.protocol),
                  static_cast<int>(route.grid), route.reason};
    if (options_.protocol && *options_.protocol != route.protocol) {
      choice.protocol = algorithm::name_of(*options_.protocol);
      choice.grid = 0;  // the route's is for another protocol
    }
    if (options_.protocol) choice.reason = "protocol forced";
    if (options_.grid != 0) choice.grid = static_cast<int>(options_.grid);
    return choice;
  }

  int roundings() const override { return 1; }

  Status run_loop(const Operation& operation, std::uint32_t chain, std::span<double> us,
                  runtime::Stream stream) override {
    const runtime::LoopPlan plan{static_cast<std::uint32_t>(us.size()) + kCatchUp, chain, sm_};
    std::vector<double> ns;
    NL_TRY(runtime::run_all_reduce_loop(*communicator_, operation.send, operation.recv, operation.count,
                                        operation.type, operation.op, plan, ns, stream, options_));
    if (ns.size() != plan.samples) {
      return failure(Code::internal_error, "%zu times for %u samples", ns.size(), plan.samples);
    }
    for (std::size_t i = 0; i < us.size(); ++i) us[i] = ns[kCatchUp + i] * 1e-3;
    return {};
  }

 private:
  std::unique_ptr<runtime::Communicator> communicator_;
  runtime::CallOptions options_;
  std::optional<std::uint32_t> sm_;
  std::string impl_;
};

}  // namespace

std::unique_ptr<Contender> make_nearlight_contender(std::unique_ptr<runtime::Communicator> communicator,
                                                    const runtime::CallOptions& options,
                                                    std::optional<std::uint32_t> sm, bool names_protocol) {
  return std::make_unique<NearlightContender>(std::move(communicator), options, sm, names_protocol);
}

}  // namespace nearlight::bench
