#include "cli/peers/mpi/openmpi_contender.hpp"

#include <mpi.h>

#include <climits>

#include "cli/peers/mpi/mpi_call.hpp"

namespace nearlight::peers {

namespace {

class OpenMpiContender final : public bench::Contender {
 public:
  const char* impl() const override { return "openmpi"; }

  Status all_reduce(const bench::Operation& operation, runtime::Stream) override {
    if (operation.count > INT_MAX)
      return failure(Code::unsupported, "MPI_Allreduce takes at most %d elements", INT_MAX);
    if (operation.type == DataType::bf16) return failure(Code::unsupported, "MPI has no bfloat16");
    const void* const send = operation.send == operation.recv ? MPI_IN_PLACE : operation.send;
    return mpi_status(MPI_Allreduce(send, operation.recv, static_cast<int>(operation.count),
                                    operation.type == DataType::i32 ? MPI_INT32_T : MPI_FLOAT,
                                    operation.op == ReduceOp::sum ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD),
                      "MPI_Allreduce");
  }

  bench::Choice choice(std::size_t, DataType, ReduceOp) const override {
    return {"", "", 0, "MPI does not tell"};
  }
  int roundings() const override { return 1; }
};

}  // namespace

std::unique_ptr<bench::Contender> make_openmpi_contender() { return std::make_unique<OpenMpiContender>(); }

}  // namespace nearlight::peers
