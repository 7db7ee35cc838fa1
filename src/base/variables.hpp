// The NEARLIGHT_* environment variables: one table with all of them, and the only way to read them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace nearlight::variables {

// Who reads a variable.
enum class Reader { library, python, tests, dev, gpu_bundle };

// A whole number in [lowest, highest].
struct Integer {
  const char* name;
  std::int64_t lowest, highest, unset;
  const char* unit;  // may be ""
  const char* meaning;
};

// The same where no number stands for one that is not set.
struct OptionalInteger {
  const char* name;
  std::int64_t lowest, highest;
  const char* unset;  // what happens without it
  const char* meaning;
};

// 0 or 1.
struct Switch {
  const char* name;
  bool unset;
  const char* meaning;
};

struct Text {
  const char* name;
  const char* takes;
  const char* unset;  // what happens without it
  const char* meaning;
};

inline constexpr Switch kCalibrate{"NEARLIGHT_CALIBRATE", false,
                                   "Whether ranks on GPUs of their own measure, as they create a "
                                   "communicator and for some 40 ms, which part "
                                   "of its memory is the fastest for small messages. The same on all ranks."};
inline constexpr Switch kCheck{
    "NEARLIGHT_CHECK", false,
    "Check mode, for communicators whose configuration does not say: every call looks at its pointers and "
    "its "
    "stream and is compared with all other ranks' (which waits for them, but for GPU ranks of one process); "
    "calls of a GPU rank on two streams are told of. Slower; for finding "
    "mistakes. The same on all ranks."};
inline constexpr Text kDebug{"NEARLIGHT_DEBUG", "route", "nothing",
                             "What to tell on stderr. route: the route of calls and why, by rank 0, once for "
                             "each type, operator and power of two of the bytes."};
inline constexpr Switch kDeterministic{
    "NEARLIGHT_DETERMINISTIC", true,
    "Whether results must be the same from run to run, for communicators whose configuration does not say. "
    "0: sums and averages may be added in the order of arrival, by who asks for two_shot_atomic and by three "
    "or more GPUs with NVLink; all ranks still have the same bits. The same on all ranks."};
inline constexpr Switch kDropIn{
    "NEARLIGHT_DROPIN", true,
    "Whether the drop-in for NCCL takes any calls; 0: it passes all of them on. The same on all ranks."};
inline constexpr Text kDropInStats{
    "NEARLIGHT_DROPIN_STATS", "a folder", "nothing is written",
    "Where processes under the drop-in for NCCL keep their counts, a file each; `nearlight run --stats` sets "
    "it and prints them."};
inline constexpr Text kDropInTakes{
    "NEARLIGHT_DROPIN_TAKES",
    "all, or names by commas: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, "
    "send_recv",
    "all_reduce",
    "Which of NCCL's functions the drop-in takes; the others than all_reduce have not been taken between two "
    "GPUs yet. The "
    "same on all "
    "ranks."};
inline constexpr Switch kDump{
    "NEARLIGHT_DUMP", false,
    "Whether communicators answer `nearlight dump PID` with their state, by a thread of their own each."};
inline constexpr Text kDumpDir{
    "NEARLIGHT_DUMP_DIR", "a folder", "one line on stderr",
    "Where a communicator writes its state down, into a file of its own, when a wait has timed out."};
inline constexpr Text kForcePath{
    "NEARLIGHT_FORCE_PATH",
    "ll, simple, sentinel, ll128, two_shot, two_shot_atomic, nccl, staged or fallback", "the route chooses",
    "The path of all calls that can take it: one-shot by a protocol (sentinel: "
    "not integers), two_shot (what is cut into parts for all ranks), "
    "two_shot_atomic (the same for what can be added line by line; needs "
    "NEARLIGHT_DETERMINISTIC=0), nccl (handed to the attached NCCL communicator; without one no "
    "communicator is made), staged (GPU ranks without NCCL: the CPU makes the calls) or fallback (by "
    "NCCL where it is attached and takes the call, else by the CPU), whatever is faster. ll128 and "
    "two_shot_atomic "
    "are taken by GPUs only where lines are known to arrive whole. The "
    "same on all ranks. nearlightCommSetPath changes it later."};
// The next three are looked up by bootstrap/job.hpp. The limits are those of a meeting of processes.
inline constexpr Text kKey{"NEARLIGHT_KEY", "a text of 1 to 200 bytes", "the launcher's",
                           "The key by which processes of this host that are one group find each other, "
                           "where the program gives none. "
                           "The same on all ranks, and no other group's."};
inline constexpr OptionalInteger kNranks{
    "NEARLIGHT_NRANKS", 1, 64, "the launcher's",
    "How many processes the group has, where the program does not say. Comes with NEARLIGHT_RANK."};
inline constexpr OptionalInteger kRank{
    "NEARLIGHT_RANK", 0, 63, "the launcher's",
    "Which of them this process is, where the program does not say. Less than NEARLIGHT_NRANKS."};
inline constexpr OptionalInteger kEarlyLaunch{
    "NEARLIGHT_EARLY_LAUNCH", 0, 1,
    "1 where on every GPU it is the process's first communicator and no other rank's, else 0",
    "Whether the kernel after a call's may become resident while the call still waits for the others "
    "(programmatic dependent launch), for communicators whose configuration does not say. 0: with the call's "
    "end. The same on all ranks."};
inline constexpr Integer kMaxCtas{"NEARLIGHT_MAX_CTAS",
                                  0,
                                  1024,
                                  0,
                                  "",
                                  "The most CTAs that a call takes of a GPU, for communicators whose "
                                  "configuration does not say; 0: no limit. "
                                  "The same on all ranks."};
inline constexpr Integer kRetries{
    "NEARLIGHT_RETRIES",
    0,
    16,
    0,
    "",
    "How often CPU ranks make a call again that timed out, after a reset of all "
    "ranks and where their inputs are still there; each call then ends with a "
    "barrier. The same on all ranks. GPU ranks leave it aside."};
inline constexpr Text kNcclLib{
    "NEARLIGHT_NCCL_LIB", "a path", "the copy that is loaded, else libnccl.so.2 as the system finds it",
    "The NCCL to use. Needed where several copies are loaded: it says which of them."};
inline constexpr Text kNcclMemory{
    "NEARLIGHT_NCCL_MEMORY", "nccl_window or cuda_vmm",
    "nccl_window where it was tested with this NCCL and gives memory, else cuda_vmm",
    "Where a communicator that is attached to NCCL's, the drop-in's among them, has its memory: in windows "
    "of NCCL, or in memory that the ranks share without it, which takes ranks of one user in one host and "
    "container and, unless this variable asks for it, GPUs that NVLink connects and NCCL_P2P_DISABLE or "
    "NCCL_P2P_LEVEL does not keep apart. The same on all ranks."};
inline constexpr Text kRouteTable{
    "NEARLIGHT_ROUTE_TABLE", "a path", "the table that is shipped",
    "A file with the limits by which routes are chosen, as `nearlight tune` writes it, for groups of the "
    "number of ranks that it names. One for another GPU or backend is an error. The same on all ranks."};
inline constexpr Integer kTimeoutMs{
    "NEARLIGHT_TIMEOUT_MS",
    1,
    std::int64_t{1000} * 3600 * 24 * 365,
    600'000,
    "ms",
    "How long one wait for another rank lasts before the communicator fails, for communicators whose "
    "configuration does not say. The same on all ranks."};

inline constexpr Text kTrace{
    "NEARLIGHT_TRACE", "a folder", "nothing is traced",
    "Where communicators write, at their end, when the steps of their last calls were, as JSON for Chrome "
    "and "
    "Perfetto; `nearlight trace` sets it and puts the files together. The same on all ranks."};

// `text`, the value of the variable `name` (anybody's, as RANK), as a whole number in [lowest, highest]; else
// Code::invalid_argument, and the text names the variable and the limits. `unit` may be "".
Result<std::int64_t> whole_number(const char* name, const char* text, std::int64_t lowest,
                                  std::int64_t highest, const char* unit = "");

// The value, or what holds without it. A value that is none of those the variable takes is
// Code::invalid_argument, and the text names the variable and what it takes.
Result<std::int64_t> read(const Integer& variable);
Result<bool> read(const Switch& variable);
// Nothing where it is not set.
Result<std::optional<std::int64_t>> read(const OptionalInteger& variable);
// A text that is empty is the same as none.
std::optional<std::string> read(const Text& variable);

// One line of the table, in words.
struct Row {
  std::string name, takes, unset, meaning;
  Reader reader;
};
// Sorted by name.
std::vector<Row> all();
const char* name_of(Reader reader);

// Those of `names` that begin with NEARLIGHT_ and are in no table: one text each, which names the variable of
// the table that is nearest (in letters to change).
std::vector<std::string> complaints_about(std::span<const std::string> names);
// The same for this process's environment, as warnings (base/log.hpp); only the first call does anything.
void warn_about_unknown();

// docs/reference/variables.md.
std::string reference_page();

}  // namespace nearlight::variables
