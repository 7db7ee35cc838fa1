// Named places in the creation of a communicator at which a test may hold a rank up, make it fail or end it.
// Compiled in, and nothing but a look at a pointer of the thread where no test has set anything. Calls of
// collectives have but one of these: what a test may do there stands in runtime::CallOptions.
#pragma once

#include <functional>
#include <span>

#include "base/status.hpp"

namespace nearlight::fault_points {

// Which creations come by a point.
enum class Creation { host, cuda, cuda_memory, nccl };

struct Point {
  const char* name;  // in the text of a failure: "memory.mmap"
  const char* what;  // what is about to be done
  Creation creation;
  // Whether a rank that fails here can tell the others why. Where it cannot, because it has not met them yet,
  // they miss it at the end of their time and name it.
  bool heard = true;
};

// The meeting of processes (bootstrap/process_group.hpp).
inline constexpr Point kMeetingSocket{"meeting.socket", "making a socket", Creation::host, false};
inline constexpr Point kMeetingBind{"meeting.bind", "taking the meeting's name (rank 0)", Creation::host,
                                    false};
inline constexpr Point kMeetingListen{"meeting.listen", "listening (rank 0)", Creation::host, false};
inline constexpr Point kMeetingConnect{"meeting.connect", "connecting to rank 0", Creation::host, false};
inline constexpr Point kMeetingHost{"meeting.host", "asking who rank 0 is", Creation::host, false};
inline constexpr Point kMeetingHostPidfd{"meeting.host_pidfd", "watching rank 0's process", Creation::host};
inline constexpr Point kMeetingAccept{"meeting.accept", "letting a rank in (rank 0)", Creation::host};
inline constexpr Point kMeetingGuest{"meeting.guest", "asking who has come (rank 0)", Creation::host};
inline constexpr Point kMeetingGuestPidfd{"meeting.guest_pidfd", "watching a rank's process (rank 0)",
                                          Creation::host};
inline constexpr Point kMeetingOwnPidfd{"meeting.own_pidfd", "a descriptor of rank 0's own process",
                                        Creation::host};
inline constexpr Point kMeetingDuplicate{"meeting.duplicate", "duplicating a rank's descriptor (rank 0)",
                                         Creation::host};
inline constexpr Point kMeetingWelcome{"meeting.welcome", "sending the descriptors (rank 0)", Creation::host};
inline constexpr Point kMeetingSeat{"meeting.seat", "taking the descriptors", Creation::host};
inline constexpr Point kBoardMemfd{"board.memfd_create", "the memory of the board (rank 0)", Creation::host};
inline constexpr Point kBoardSize{"board.ftruncate", "its size (rank 0)", Creation::host};
inline constexpr Point kBoardSeal{"board.seal", "sealing it (rank 0)", Creation::host};
inline constexpr Point kBoardStat{"board.fstat", "looking at its size", Creation::host};
inline constexpr Point kBoardMap{"board.mmap", "mapping it", Creation::host};
inline constexpr Point kBoardLine{"board.socketpair", "a line for descriptors (rank 0)", Creation::host};
// The exchange among ranks that have met.
inline constexpr Point kExchangeRound{"exchange.round", "a round among the ranks", Creation::host};
inline constexpr Point kShareDuplicate{"exchange.duplicate", "duplicating the descriptor to share",
                                       Creation::host};
inline constexpr Point kShareSend{"exchange.send", "sending it to a rank", Creation::host};
inline constexpr Point kShareReceive{"exchange.receive", "receiving it", Creation::host};
// Shared memory of CPU ranks.
inline constexpr Point kMemoryMemfd{"memory.memfd_create", "the shared memory (rank 0)", Creation::host};
inline constexpr Point kMemorySize{"memory.ftruncate", "its size (rank 0)", Creation::host};
inline constexpr Point kMemorySeal{"memory.seal", "sealing it (rank 0)", Creation::host};
inline constexpr Point kMemoryReserve{"memory.reserve", "addresses for it", Creation::host};
inline constexpr Point kMemoryMap{"memory.mmap", "mapping it", Creation::host};
inline constexpr Point kMemoryProvide{"memory.provide", "pages for this rank's part", Creation::host};
inline constexpr Point kMemoryTouch{"memory.touch", "entering all parts into the page table", Creation::host};
// The communicator itself.
inline constexpr Point kSettings{"create.settings", "reading options and environment", Creation::host};
inline constexpr Point kWatchStop{"watch.eventfd", "the descriptor that ends the watching", Creation::host};
inline constexpr Point kWatchPidfd{"watch.pidfd", "watching a peer's process", Creation::host};
inline constexpr Point kWatchThread{"watch.thread", "starting the thread that watches", Creation::host};
// GPU ranks.
inline constexpr Point kCudaDevice{"cuda.device", "looking at the device", Creation::cuda};
inline constexpr Point kCudaKernels{"cuda.kernels", "loading the kernels", Creation::cuda};
inline constexpr Point kCudaControl{"cuda.control", "state words and record", Creation::cuda};
inline constexpr Point kCudaCalibrate{"cuda.calibrate", "measuring which regions are the fastest",
                                      Creation::cuda};
inline constexpr Point kCudaPackets{"cuda.packets", "putting the packets to rest", Creation::cuda};
inline constexpr Point kCudaLines{"cuda.lines", "seeing whether lines of 128 bytes arrive whole",
                                  Creation::cuda};
inline constexpr Point kVmmDevice{"cuda_memory.device", "looking at what the device can share",
                                  Creation::cuda_memory};
inline constexpr Point kVmmPeers{"cuda_memory.peers", "asking which devices it reaches",
                                 Creation::cuda_memory};
inline constexpr Point kVmmReserve{"cuda_memory.reserve", "addresses for the memory", Creation::cuda_memory};
inline constexpr Point kVmmCreate{"cuda_memory.create", "this rank's memory", Creation::cuda_memory};
inline constexpr Point kVmmExport{"cuda_memory.export", "a descriptor of it", Creation::cuda_memory};
inline constexpr Point kVmmImport{"cuda_memory.import", "another process's memory", Creation::cuda_memory};
inline constexpr Point kVmmMap{"cuda_memory.map", "mapping it", Creation::cuda_memory};
inline constexpr Point kVmmAllow{"cuda_memory.allow", "letting the device reach it", Creation::cuda_memory};
inline constexpr Point kVmmZero{"cuda_memory.zero", "zeroing it", Creation::cuda_memory};
inline constexpr Point kNcclTeam{"nccl.team", "asking for the load/store team", Creation::nccl};
inline constexpr Point kNcclAllocate{"nccl.allocate", "memory for a window", Creation::nccl};
inline constexpr Point kNcclRegister{"nccl.register", "registering the window", Creation::nccl};
inline constexpr Point kNcclZero{"nccl.zero", "zeroing it", Creation::nccl};

// Where the first call that the CPU makes starts its thread; no creation comes by it, and all() has it not.
inline constexpr Point kStagedThread{"staged.thread", "starting the thread that makes the CPU's calls",
                                     Creation::cuda};

// Every point of a creation, in the order above.
std::span<const Point* const> all();

// Called with each point that the calling thread comes to. What it returns is what became of the step: ok
// lets it go on. It may take its time, and may end the process.
using Hook = std::function<Status(const Point&)>;

// Sets the calling thread's hook for the life of this object, which ends on the same thread. They nest.
class Planted {
 public:
  explicit Planted(Hook hook);
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
  ~Planted();

 private:
  Hook hook_;
  const Hook* outer_;
};

// What a hook returns to make the step fail: Code::system_error, and a text that names the point.
Status planted_failure(const Point& point);

namespace detail {
extern constinit thread_local const Hook* hook;
}

// The library comes to a point.
inline Status pass(const Point& point) { return detail::hook == nullptr ? Status() : (*detail::hook)(point); }

}  // namespace nearlight::fault_points
