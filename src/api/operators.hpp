// The operators that nearlightRedOpCreatePreMulSum has made. As with handles, the number is looked up: one of
// another communicator, of another type or of no operator at all is found out.
#pragma once

#include <nearlight/nearlight.h>
#include "base/status.hpp"
#include "base/types.hpp"

namespace nearlight::api {

// Those in front of it are the operators of the header, and what later versions add to them.
inline constexpr int kFirstOperator = 1024;

// Any thread, as all of these.
Result<nearlightRedOp_t> add_operator(nearlightComm_t comm, const Reduction::Factor& factor);

// Code::invalid_argument names the operator: not made for `comm`, or no longer there.
Status remove_operator(nearlightComm_t comm, nearlightRedOp_t op);

// At the end of a communicator, when nobody makes one for it any more.
void remove_operators_of(nearlightComm_t comm);

// In the child of a fork: those of the parent belong to communicators that the child does not have.
void forget_operators_of_parent();

// What `op` means for elements of `type`: one of the header's, or one that was made for `comm` and that type.
// Code::invalid_argument: none of them.
Result<Reduction> find_reduction(nearlightComm_t comm, nearlightRedOp_t op, DataType type);

}  // namespace nearlight::api
