#include "tests/unit/protocol_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "algorithm/any_math.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"

namespace nearlight::test {

namespace {

using algorithm::Protocol;
using Region = protocol::FlatRegion<HostSpace>;
using Session = protocol::Session<Region, exec::LaneCoop>;

constexpr std::uint64_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

template <class T, class Math, class Bufs>
void run_kind(Session& session, const ProtocolCall& call, const Bufs& input, const Bufs& output,
              const Math& math) {
  constexpr int kMax = protocol::kMaxRanks;
  const algorithm::Share all{0, 1};
  const algorithm::NoDelay hooks;
  if (call.protocol == Protocol::sentinel) {
    if constexpr (algorithm::kHasSentinel<T>) {
      algorithm::one_shot_sentinel<Math, algorithm::SentinelCell<T>, kMax>(session, all, 1, input, output,
                                                                           hooks, math);
    }
    return;
  }
  if (call.protocol == Protocol::ll128) {
    return algorithm::one_shot_ll128<Math, kMax>(session, all, input, output, hooks, math);
  }
  if (call.protocol == Protocol::simple) {
    if (call.held <= 1) {
      return algorithm::one_shot_simple<Math, kMax, 1>(session, all, input, output, hooks, math);
    }
    return algorithm::one_shot_simple<Math, kMax, 2>(session, all, input, output, hooks, math);
  }
  if (call.held == 0) return algorithm::one_shot_ll<Math, kMax, 0>(session, all, input, output, hooks, math);
  if (call.held == 1) return algorithm::one_shot_ll<Math, kMax, 1>(session, all, input, output, hooks, math);
  return algorithm::one_shot_ll<Math, kMax, 2>(session, all, input, output, hooks, math);
}

template <class T, ReduceOp op>
void run_own(Session& session, const ProtocolCall& call, void* send, void* recv) {
  using Bufs = algorithm::Buffer<HostSpace, T>;
  run_kind<T>(session, call, Bufs(send, call.count), Bufs(recv, call.count),
              algorithm::PackMath<HostSpace, T, op>{});
}

template <class T>
void run_any(Session& session, const ProtocolCall& call, std::uint64_t factor, void* send, void* recv) {
  using Bufs = algorithm::ScaledBuffer<HostSpace, T>;
  const Bufs input(send, call.count, call.op == ReduceOp::premul_sum, factor);
  run_kind<T>(session, call, input, Bufs(recv, call.count), algorithm::AnyMath<HostSpace, T>{call.op});
}

Source source_of(const ProtocolCall& call) { return {Values::numbers, call.seed}; }

// By the code that the library would take.
void run_type(Session& session, const ProtocolCall& call, int rank, void* send, void* recv) {
  const bool sum = call.op == ReduceOp::sum;
  if (algorithm::has_own_code(call.type, call.op)) {
    switch (call.type) {
      case DataType::i32:
        return sum ? run_own<std::int32_t, ReduceOp::sum>(session, call, send, recv)
                   : run_own<std::int32_t, ReduceOp::max>(session, call, send, recv);
      case DataType::f32:
        return sum ? run_own<float, ReduceOp::sum>(session, call, send, recv)
                   : run_own<float, ReduceOp::max>(session, call, send, recv);
      case DataType::bf16:
        return sum ? run_own<Bf16, ReduceOp::sum>(session, call, send, recv)
                   : run_own<Bf16, ReduceOp::max>(session, call, send, recv);
      default:
        return run_own<F16, ReduceOp::sum>(session, call, send, recv);
    }
  }
  with_type(call.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_void_v<T>) {
      run_any<T>(session, call, factor_bits(source_of(call), call.type, rank), send, recv);
    }
  });
}

// The send and receive buffers of one rank, with guards around what the call may touch.
class Buffers {
 public:
  Buffers(const ProtocolCall& call, int rank) : call_(call), rank_(rank) {
    const std::size_t size = size_of(call.type);
    const std::size_t start = kGuardBytes + (call.misaligned + static_cast<std::size_t>(rank)) % 4 * size;
    bytes_ = call.count * size;
    for (auto* buffer : {&send_, &recv_}) {
      buffer->assign(start + bytes_ + kGuardBytes, kGuard);
    }
    send_at_ = start;
    recv_at_ = call.in_place ? start : kGuardBytes + (start - kGuardBytes + size) % (4 * size);
    for (std::uint64_t i = 0; i < call.count; ++i) {
      store_bits(call.type, send(), i, input_bits(source(), call.type, rank, i));
    }
  }

  void* send() { return send_.data() + send_at_; }
  void* recv() { return call_.in_place ? send() : recv_.data() + recv_at_; }

  void check(int nranks, std::size_t number, Problems& problems) {
    std::vector<std::uint64_t> inputs(static_cast<std::size_t>(nranks));
    for (std::uint64_t i = 0; i < call_.count; ++i) {
      for (int rank = 0; rank < nranks; ++rank) {
        inputs[static_cast<std::size_t>(rank)] = input_bits(source(), call_.type, rank, i);
      }
      const std::uint64_t expected = reduce_reference(call_.type, call_.op, inputs, factors_of(nranks));
      const std::uint64_t got = load_bits(call_.type, recv(), i);
      if (got != expected) {
        problems.add("call %zu (%s %s %s, %llu elements, held %d) rank %d element %llu: %llx, expected %llx",
                     number, name_of(call_.protocol), name_of(call_.type), name_of(call_.op),
                     static_cast<unsigned long long>(call_.count), call_.held, rank_,
                     static_cast<unsigned long long>(i), static_cast<unsigned long long>(got),
                     static_cast<unsigned long long>(expected));
      }
    }
    check_guards(call_.in_place ? send_ : recv_, call_.in_place ? send_at_ : recv_at_, number, problems);
    if (!call_.in_place) {
      check_guards(send_, send_at_, number, problems);
      for (std::uint64_t i = 0; i < call_.count; ++i) {
        if (load_bits(call_.type, send(), i) != input_bits(source(), call_.type, rank_, i)) {
          problems.add("call %zu rank %d: the input was changed", number, rank_);
          break;
        }
      }
    }
  }

 private:
  Source source() const { return source_of(call_); }
  std::vector<std::uint64_t> factors_of(int nranks) const {
    std::vector<std::uint64_t> factors;
    for (int rank = 0; rank < nranks; ++rank) factors.push_back(factor_bits(source(), call_.type, rank));
    return factors;
  }
  void check_guards(const std::vector<std::byte>& buffer, std::size_t at, std::size_t number,
                    Problems& problems) const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    if (!std::all_of(buffer.begin(), begin, is_guard) || !std::all_of(end, buffer.end(), is_guard)) {
      problems.add("call %zu rank %d: written outside the buffer", number, rank_);
    }
  }

  const ProtocolCall& call_;
  int rank_;
  std::size_t bytes_ = 0, send_at_ = 0, recv_at_ = 0;
  std::vector<std::byte> send_, recv_;
};

}  // namespace

ProtocolRanks::ProtocolRanks(const ProtocolShape& shape)
    : shape_(shape),
      layout_{shape.ranks, shape.slots, shape.cells, shape.packets, shape.lines, shape.lines},
      stride_(layout_.region_bytes() + sizeof(Line)),
      heap_(stride_ / sizeof(Line) * static_cast<std::size_t>(shape.ranks)),
      ranks_(static_cast<std::size_t>(shape.ranks)) {
  for (ProtocolRank& rank : ranks_) rank.state.epoch = shape.initial_epoch;
  // At rest packets hold the sentinel.
  char* const base = reinterpret_cast<char*>(heap_.data());
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::memset(base + static_cast<std::size_t>(rank) * stride_ + layout_.packets_at(), 0xff,
                layout_.packets_bytes());
  }
}

void ProtocolRanks::run(const ProtocolCall& call, int rank, exec::LaneCoop coop, void* send, void* recv) {
  ProtocolRank& own = this->rank(rank);
  protocol::Control<HostSpace> control;
  control.abort = &own.abort;
  control.claim = &own.claim;
  control.valid = &own.valid;
  control.record = &own.record;
  control.timeout_ns = shape_.timeout_ns;
  Session session(Region(reinterpret_cast<char*>(heap_.data()), stride_, rank, layout_), coop, own.state,
                  control, 0, 0);
  run_type(session, call, rank, send, recv);
  session.close();
}

std::string ProtocolRanks::run_all(const std::vector<ProtocolCall>& calls) {
  std::vector<Problems> problems(static_cast<std::size_t>(shape_.ranks));
  std::vector<std::thread> threads;
  const int lanes = shape_.lanes;
  struct Group {
    explicit Group(int lanes) : inside(lanes), between(lanes) {}
    std::barrier<> inside, between;
    std::unique_ptr<Buffers> buffers;
  };
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < shape_.ranks; ++rank) groups.push_back(std::make_unique<Group>(lanes));
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    for (int lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, rank, lane] {
        Group& group = *groups[static_cast<std::size_t>(rank)];
        for (std::size_t number = 0; number < calls.size(); ++number) {
          if (lane == 0) group.buffers = std::make_unique<Buffers>(calls[number], rank);
          group.between.arrive_and_wait();
          run(calls[number], rank, {lane, lanes, &group.inside}, group.buffers->send(),
              group.buffers->recv());
          group.between.arrive_and_wait();
          if (lane == 0) group.buffers->check(shape_.ranks, number, problems[static_cast<std::size_t>(rank)]);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    if (this->rank(rank).valid != 0) text += "rank " + std::to_string(rank) + " gave up\n";
    text += problems[static_cast<std::size_t>(rank)].text();
  }
  return text;
}

std::vector<ProtocolCall> random_calls(std::size_t number, std::uint64_t max_bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::vector<ProtocolCall> calls(number);
  for (ProtocolCall& call : calls) {
    call.protocol = algorithm::kProtocols[below(std::size(algorithm::kProtocols))];
    call.held = static_cast<int>(below(3));
    call.type = kDataTypes[below(std::size(kDataTypes))];
    if (!algorithm::carries(call.protocol, call.type)) call.protocol = Protocol::ll;
    call.op = kReduceOps[below(std::size(kReduceOps))];
    // Small ones most often: a count of 0 and 1, ends inside a pack and a vector, then several rounds.
    const std::uint64_t limit = below(3) == 0 ? max_bytes : 64;
    call.count = below(limit / size_of(call.type) + 1);
    call.in_place = below(2) == 0;
    call.misaligned = static_cast<std::uint32_t>(below(4));
    call.seed = random();
  }
  return calls;
}

}  // namespace nearlight::test
