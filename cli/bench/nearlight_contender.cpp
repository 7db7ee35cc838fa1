#include "cli/bench/nearlight_contender.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "cli/bench/watchdog.hpp"
#include "cli/results.hpp"
#include "runtime/kernel_loop.hpp"

namespace nearlight::bench {

namespace {

// Samples at the start of a loop inside a kernel that do not count: in them the ranks catch up with each
// other.
constexpr std::uint32_t kCatchUp = 8;

class NearlightContender final : public Contender {
 public:
  NearlightContender(std::shared_ptr<runtime::Communicator> communicator, const runtime::CallOptions& options,
                     std::optional<std::uint32_t> sm, bool names_choice, const PairMember& member)
      : communicator_(std::move(communicator)),
        options_(options),
        called_(options),
        sm_(sm),
        impl_(member.impl.empty() ? cli::kOwnImpl : member.impl),
        traced_(member.traced) {
    // On a GPU in loops alone.
    if (is_gpu()) called_.instead = nullptr;
    if (member.ends_after) watchdog_.emplace(*member.ends_after);
    if (!names_choice) return;
    if (options.algorithm) impl_ += std::string("_") + algorithm::name_of(*options.algorithm);
    if (options.protocol) impl_ += std::string("_") + algorithm::name_of(*options.protocol);
  }

  const char* impl() const override { return impl_.c_str(); }

  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    last_ = operation;
    return watched([&] {
      return communicator_->all_reduce(operation.send, operation.recv, operation.count, operation.type,
                                       operation.op, stream, called_);
    });
  }

  Status by_parts(const Operation& operation, runtime::Stream stream) override {
    last_ = operation;
    if (operation.collective == Collective::send_recv) {
      // To the next rank, and from the one before.
      const int rank = communicator_->rank(), nranks = communicator_->nranks();
      const runtime::MessageCall both[] = {
          {true, const_cast<void*>(operation.send), operation.count, operation.type, (rank + 1) % nranks},
          {false, operation.recv, operation.count, operation.type, (rank + nranks - 1) % nranks}};
      return communicator_->messages(both, stream, options_);
    }
    return communicator_->collective(call_of(operation), stream, options_);
  }

  Status failed() const override { return communicator_->status(); }
  void abandon() override {
    communicator_->abort();
    if (watchdog_) watchdog_->abandon();
  }

  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    NL_TRY_ASSIGN(const route::Route route,
                  mode == cli::Mode::kernel
                      ? runtime::explain_all_reduce_loop(*communicator_, count, type, op, options_)
                      : communicator_->explain_all_reduce(count, type, op, options_));
    NL_TRY(check_traced(count * size_of(type), route, algorithm::is_traced(type, op, route.protocol)));
    return Choice{algorithm::name_of(route.algorithm), route::protocol_name(route),
                  static_cast<int>(route.grid), route.reason, forced(route)};
  }

  Result<Choice> choice_of(const Operation& operation, cli::Mode mode) const override {
    if (operation.collective == Collective::all_reduce) {
      return choice(operation.count, operation.type, operation.op.op, mode);
    }
    NL_TRY_ASSIGN(const route::Route route, explain(operation));
    NL_TRY(check_traced(operation.count * size_of(operation.type), route, true));
    return Choice{algorithm::name_of(route.algorithm), route::protocol_name(route),
                  static_cast<int>(route.grid), route.reason, forced(route)};
  }

  // Of the last operation: what was handed to NCCL is rounded as NCCL does, and what adds in the order of
  // arrival rounds to the type at every rank.
  int roundings() const override {
    const auto route = last_.collective == Collective::all_reduce
                           ? communicator_->explain_all_reduce(last_.count, last_.type, last_.op.op, options_)
                           : explain(last_);
    const bool rounds = route.ok() && (route->algorithm == route::Algorithm::nccl ||
                                       route->algorithm == route::Algorithm::two_shot_atomic);
    return rounds ? communicator_->nranks() : 1;
  }

  Status run_loop(const Operation& operation, std::uint32_t chain, std::span<double> us,
                  runtime::Stream stream) override {
    const runtime::LoopPlan plan{static_cast<std::uint32_t>(us.size()) + kCatchUp, chain, sm_};
    std::vector<double> ns;
    NL_TRY(watched([&] {
      return runtime::run_all_reduce_loop(*communicator_, operation.send, operation.recv, operation.count,
                                          operation.type, operation.op, plan, ns, stream, options_);
    }));
    if (ns.size() != plan.samples) {
      return failure(Code::internal_error, "%zu times for %u samples", ns.size(), plan.samples);
    }
    for (std::size_t i = 0; i < us.size(); ++i) us[i] = ns[kCatchUp + i] * 1e-3;
    return {};
  }

 private:
  static runtime::CollectiveCall call_of(const Operation& operation) {
    return {operation.collective, operation.send, operation.recv, operation.count,
            operation.type,       operation.op,   operation.root};
  }
  Result<route::Route> explain(const Operation& operation) const {
    if (operation.collective != Collective::send_recv)
      return communicator_->explain(call_of(operation), options_);
    return communicator_->explain_message({true, nullptr, operation.count, operation.type,
                                           (communicator_->rank() + 1) % communicator_->nranks()},
                                          options_);
  }
  // `kind`: whether there are kernels that trace such calls.
  Status check_traced(std::size_t bytes, const route::Route& route, bool kind) const {
    if (!traced_ || !is_gpu() || (kind && route.algorithm == route::Algorithm::one_shot)) return {};
    return failure(Code::invalid_argument, "%zu bytes go by %s %s, of which nothing is traced", bytes,
                   algorithm::name_of(route.algorithm), route::protocol_name(route));
  }
  bool is_gpu() const { return std::string_view(communicator_->backend()) == "cuda"; }
  template <class Call>
  Status watched(Call&& call) {
    if (!watchdog_) return call();
    watchdog_->begin();
    Status status = call();
    watchdog_->end();
    return status;
  }
  // One rank copies, whatever it is asked for.
  std::string forced(const route::Route& route) const {
    if (route.algorithm == route::Algorithm::copy) return "";
    std::string text;
    const auto add = [&text](const char* what, const std::string& value) {
      text += (text.empty() ? "" : ",") + std::string(what) + "=" + value;
    };
    if (options_.algorithm) add("algorithm", algorithm::name_of(*options_.algorithm));
    if (options_.protocol) add("protocol", algorithm::name_of(*options_.protocol));
    if (options_.grid != 0) add("grid", std::to_string(options_.grid));
    if (options_.threads != 0) add("threads", std::to_string(options_.threads));
    return text;
  }

  std::shared_ptr<runtime::Communicator> communicator_;
  runtime::CallOptions options_, called_;  // of loops, of calls
  Operation last_;
  std::optional<std::uint32_t> sm_;
  std::string impl_;
  bool traced_;
  std::optional<Watchdog> watchdog_;
};

}  // namespace

std::unique_ptr<Contender> make_nearlight_contender(std::shared_ptr<runtime::Communicator> communicator,
                                                    const runtime::CallOptions& options,
                                                    std::optional<std::uint32_t> sm, bool names_choice,
                                                    const PairMember& member) {
  return std::make_unique<NearlightContender>(std::move(communicator), options, sm, names_choice, member);
}

}  // namespace nearlight::bench
