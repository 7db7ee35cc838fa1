// Streams whose last operation by nearlight lets the next kernel begin early.
#pragma once

namespace nearlight::dropin::tails {

// An operation of ours was enqueued on the stream. Any thread.
void mark(void* stream, int device);

}  // namespace nearlight::dropin::tails
