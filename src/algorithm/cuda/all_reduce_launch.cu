#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/enqueue.hpp"
#include "algorithm/fit.hpp"

namespace nearlight::algorithm::cuda {

namespace {

Kernel pick_own(DataType type, const Pick& pick) {
  switch (type) {
    case DataType::f32:
      return pick_f32(pick);
    case DataType::bf16:
      return pick_bf16(pick);
    case DataType::i32:
      return pick_i32(pick);
    case DataType::f16:
      return pick_f16(pick);
    default:
      return nullptr;
  }
}

Kernel pick_kernel(DataType type, const Pick& pick) {
  if (pick.algorithm == Algorithm::two_shot_atomic) return pick_atomic(type, pick);
  if (pick.nranks > 1 && has_own_code(type, pick.op)) {
    // Of the sentinel's there are own ones for sum alone, of LL128's for integers.
    const Kernel own = pick_own(type, pick);
    const bool some_own = pick.protocol == Protocol::sentinel || pick.protocol == Protocol::ll128 ||
                          pick.algorithm == Algorithm::two_shot;
    if (own != nullptr || !some_own) return own;
  }
  for (const auto pick_any : {pick_any_integer, pick_any_float, pick_any_small_float}) {
    if (const Kernel kernel = pick_any(type, pick); kernel != nullptr) return kernel;
  }
  return nullptr;
}

}  // namespace

// Of a pinned loop: enough that every SM gets one; see is_pinned_here().
constexpr unsigned kPinnedCtas = 1024;

namespace {

struct Choice {
  Kernel kernel;  // null: there is none
  unsigned threads;
};

Choice choose(const AllReduceArgs& args, const LaunchShape& shape) {
  const Variant variant = shape.loop ? Variant::loop : shape.delayed ? Variant::delayed : Variant::once;
  const Cut cut{shape.type, shape.op,      shape.algorithm, shape.protocol, args.count * size_of(shape.type),
                shape.grid, shape.threads, shape.held,      args.packets};
  const Fit fit =
      fit_of(cut, reinterpret_cast<std::uintptr_t>(args.send) | reinterpret_cast<std::uintptr_t>(args.recv));
  Pick pick{shape.op, args.nranks, shape.protocol, shape.held, fit.fast, variant, shape.algorithm, fit.whole};
  if (shape.traced && variant == Variant::once && shape.algorithm == Algorithm::one_shot &&
      is_traced(shape.type, shape.op, shape.protocol)) {
    pick.variant = Variant::traced;
  }
  const PickKernel of = shape.loop && shape.loops != nullptr ? shape.loops : pick_kernel;
  return {of(shape.type, pick), threads_that_run(cut, fit)};
}

Status no_kernel(const AllReduceArgs& args, const LaunchShape& shape) {
  return failure(Code::invalid_argument, "no kernel for %s %s, %s, %s, %u packs a thread, %d ranks%s",
                 name_of(shape.type), name_of(shape.op), name_of(shape.algorithm), name_of(shape.protocol),
                 shape.held, args.nranks,
                 shape.delayed ? ", with delays"
                 : shape.loop  ? ", in a loop"
                               : "");
}

}  // namespace

Status launch(const AllReduceArgs& given, const LaunchShape& shape, cudaStream_t stream) {
  AllReduceArgs args = given;
  args.held = shape.threads * shape.held;
  args.first_region = shape.first_region;
  args.regions += shape.first_region * args.region_bytes;
  args.states += shape.first_region;
  const Choice choice = choose(args, shape);
  if (choice.kernel == nullptr) return no_kernel(args, shape);
  return enqueue(choice.kernel, args, shape.pinned ? kPinnedCtas : shape.grid, choice.threads, stream);
}

Status load(const AllReduceArgs& args, const LaunchShape& shape) {
  const Choice choice = choose(args, shape);
  return choice.kernel == nullptr ? no_kernel(args, shape) : load_kernel(choice.kernel);
}

Status launch_alone(const AllReduceArgs& args, DataType type, std::uint32_t max_ctas, cudaStream_t stream) {
  const Kernel kernel =
      pick_kernel(type, {ReduceOp::premul_sum, 1, Protocol::simple, 0, false, Variant::once});
  if (kernel == nullptr) return failure(Code::invalid_argument, "no kernel for one rank's %s", name_of(type));
  const std::uint64_t most_ctas = max_ctas != 0 && max_ctas < 256 ? max_ctas : 256;
  const std::uint64_t per_cta = kMaxThreads * (sizeof(exec::Vec) / size_of(type));
  const std::uint64_t ctas = (args.count + per_cta - 1) / per_cta;
  return enqueue(kernel, args, static_cast<unsigned>(ctas < most_ctas ? ctas : most_ctas), kMaxThreads,
                 stream);
}

namespace {

// All of a variant; the kernels that there are not are passed over.
Status load_variant(Variant variant) {
  const auto load = [](Kernel kernel) { return kernel == nullptr ? Status() : load_kernel(kernel); };
  for (const DataType type : kDataTypes) {
    // The last one stands for all operators without code of their own.
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::premul_sum}) {
      for (const int nranks : {1, 2, 4, 8}) {
        for (const bool fast : {false, true}) {
          NL_TRY(load(pick_kernel(type, {op, nranks, Protocol::simple, 0, fast, variant})));
          for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot_atomic}) {
            NL_TRY(load(pick_kernel(type, {op, nranks, Protocol::ll128, 1, fast, variant, algorithm})));
          }
          for (const Protocol protocol : {Protocol::ll, Protocol::sentinel}) {
            NL_TRY(load(pick_kernel(type, {op, nranks, protocol, 1, fast, variant, Algorithm::two_shot})));
          }
          for (const std::uint32_t held : {1u, 2u, 4u}) {
            NL_TRY(load(pick_kernel(type, {op, nranks, Protocol::sentinel, held, fast, variant})));
            NL_TRY(load(pick_kernel(
                type, {op, nranks, Protocol::sentinel, held, fast, variant, Algorithm::one_shot, true})));
            NL_TRY(load(pick_kernel(type, {op, nranks, Protocol::ll, held, fast, variant})));
          }
        }
      }
    }
  }
  return {};
}

}  // namespace

Status preload() {
  for (const Variant variant : {Variant::once, Variant::loop, Variant::delayed})
    NL_TRY(load_variant(variant));
  return {};
}

Status preload_traced() { return load_variant(Variant::traced); }

}  // namespace nearlight::algorithm::cuda
