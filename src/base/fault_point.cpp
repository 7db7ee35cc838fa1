#include "base/fault_point.hpp"

#include <utility>

namespace nearlight::fault_points {

namespace detail {
constinit thread_local const Hook* hook = nullptr;
}

std::span<const Point* const> all() {
  static constexpr const Point* kAll[] = {
      &kMeetingSocket,    &kMeetingBind,    &kMeetingListen, &kMeetingConnect,    &kMeetingHost,
      &kMeetingHostPidfd, &kMeetingAccept,  &kMeetingGuest,  &kMeetingGuestPidfd, &kMeetingOwnPidfd,
      &kMeetingDuplicate, &kMeetingWelcome, &kMeetingSeat,   &kBoardMemfd,        &kBoardSize,
      &kBoardSeal,        &kBoardStat,      &kBoardMap,      &kBoardLine,         &kExchangeRound,
      &kShareDuplicate,   &kShareSend,      &kShareReceive,  &kMemoryMemfd,       &kMemorySize,
      &kMemorySeal,       &kMemoryReserve,  &kMemoryMap,     &kMemoryProvide,     &kMemoryTouch,
      &kSettings,         &kWatchStop,      &kWatchPidfd,    &kWatchThread,       &kCudaDevice,
      &kCudaKernels,      &kCudaControl,    &kCudaLines,     &kCudaCalibrate,     &kCudaPackets,
      &kVmmDevice,        &kVmmPeers,       &kVmmReserve,    &kVmmCreate,         &kVmmExport,
      &kVmmImport,        &kVmmMap,         &kVmmAllow,      &kVmmZero,           &kNcclTeam,
      &kNcclAllocate,     &kNcclRegister,   &kNcclZero};
  return kAll;
}

Planted::Planted(Hook hook) : hook_(std::move(hook)), outer_(detail::hook) { detail::hook = &hook_; }
Planted::~Planted() { detail::hook = outer_; }

Status planted_failure(const Point& point) {
  return failure(Code::system_error, "%s (%s): a failure planted by a test", point.name, point.what);
}

}  // namespace nearlight::fault_points
