// The result file, schema 1: what a run on one machine measured. Everything that writes, reads or judges one
// goes through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "base/types.hpp"
#include "probe/sol.hpp"
#include "trace/samples.hpp"

namespace nearlight::cli {

// kernel: many operations in one kernel. graph: a captured chain, per operation. eager: from the call to
// completion; what a CPU communicator does is eager.
enum class Mode { kernel, graph, eager };
const char* name_of(Mode mode);
std::optional<Mode> parse_mode(std::string_view text);

// Names of collectives in result files.
inline constexpr std::string_view kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                    "reduce",     "all_to_all", "send_recv",      "barrier"};
inline constexpr std::string_view kOwnImpl = "nearlight";

struct Machine {
  std::string gpu;     // "NVIDIA H200"; "none" without
  int gpus = 0;        // that took part
  std::string link;    // "NVLink", "PCIe", "none" (one GPU), "shm" (CPU)
  std::string driver;  // "580.159.04"; "none"
  std::string cuda;    // "13.0"; "none"
  std::string nccl;    // "2.28.9"; "none" when it was not used
  std::string cpu;     // model name
};

// The floors that a run measured, for the ratios of its rows. eager_floor_us is not part of the file.
struct Floors {
  double l2rtt_us = 0;
  double one_way_us = 0;
  double sol_us = 0;
  double store_gbs = 0;                       // 1e9 bytes per second
  std::optional<double> launch_floor_us;      // null on a CPU
  std::optional<double> launch_floor_pdl_us;  // null on a CPU
  std::optional<double> eager_floor_us;       // of a GPU
};
Floors floors_of(const probe::SolReport& report);

// What a part of the library costs, in percent of the time without it: the median over pairs of turns, and
// the quartiles.
struct Cost {
  double percent = 0, low_percent = 0, high_percent = 0;
};

struct ResultRow {
  std::string collective = "all_reduce";
  std::uint64_t bytes = 0;  // nccl-tests' "size": of the whole buffer
  std::string dtype;        // short_name_of
  std::string op;           // "sum", "max", ... (name_of); "none" where the collective reduces nothing
  int ranks = 0;
  Mode mode = Mode::graph;
  int chain = 1;          // operations a sample spans
  std::string impl;       // "nearlight", "nccl", "nccl_sym", "openmpi", ...
  std::string algorithm;  // "" when not known (peers)
  std::string protocol;   // likewise
  int grid = 0;           // CTAs; 0 when not known
  // What the caller asked for instead of leaving it to the route, "protocol=ll,grid=8": of algorithm,
  // protocol, grid and threads, in this order. "", and absent in the file: nothing.
  std::string forced;
  std::uint64_t scratch = 0;  // of nearlight's communicator (bench --scratch); 0, and absent: its default
  int jobs = 1;  // all-reduces of so many communicators ran at a time (bench --jobs); 1, and absent: alone
  double min_us = 0, p50_us = 0, p95_us = 0, p99_us = 0;
  std::optional<double> p999_us;  // null below 10 000 samples
  double max_us = 0;
  std::optional<double> cpu_us;  // CPU time an operation takes of its calling thread; may be absent
  // How much later than the first the last rank came to a sample, the median; it is not in the times. May be
  // absent.
  std::optional<double> skew_us;
  // Of the row beside nearlight's that has, or has not, the part that is measured (bench --paired). Absent
  // elsewhere.
  std::optional<Cost> cost;
  std::uint64_t samples = 0;
  std::uint64_t wrong = 0;  // elements that differed from the reference
  double ratio_sol = 0;
  double ratio_limit = 0;
};

struct ResultFile {
  std::string date;                        // "yyyy-mm-dd" or "yyyy-mm-ddThh:mm:ssZ"
  std::string commit;                      // as in build_info
  std::string command;                     // as typed
  std::map<std::string, std::string> env;  // what is_recorded()
  Machine machine;
  Floors floors;
  std::map<std::string, std::string> peers;  // how peers were set up, by impl; absent where nothing is told
  std::vector<ResultRow> rows;
};

// Bytes a rank must send at least (without multicast) for `bytes` of the whole buffer: AllReduce 2 (n-1)/n,
// AllGather, ReduceScatter and AllToAll (n-1)/n, Broadcast, Reduce and Send/Recv all of it, Barrier none. One
// rank sends nothing.
double bytes_to_send(std::string_view collective, std::uint64_t bytes, int ranks);

// The least time of this machine: launch floor of the mode + sol + bytes_to_send / store bandwidth. Launch
// floor: kernel none, graph the lower of plain and dependent launch, eager eager_floor_us; one that is absent
// (CPU) counts as 0.
double limit_us(const Floors& floors, std::string_view collective, std::uint64_t bytes, int ranks, Mode mode);

// Fills the times, `samples`, ratio_sol and ratio_limit of a row whose collective, bytes, ranks and mode are
// set.
void set_times(ResultRow& row, const trace::Summary& summary, const Floors& floors);

// An absolute path cut to its last part, anything else as it is: result files are published, and where things
// lie on a machine is nobody's business.
std::string without_folder(std::string_view text);

// Whether `env` holds this variable: its name begins with NEARLIGHT_, NCCL_, CUDA_, NVSHMEM_ or
// TORCH_SYMM_MEM_.
bool is_recorded(std::string_view variable);
// Of this process: those that are recorded.
std::map<std::string, std::string> recorded_environment();
// Today in UTC, "yyyy-mm-ddThh:mm:ssZ".
std::string now_utc();

// Everything wrong with a file, one line each ("row 3 (nccl all_reduce 128 B graph): p99_us 2.1 is below
// p95_us 2.4"). Empty: fine.
std::vector<std::string> find_faults(const ResultFile& file);
// What else is asked of a file in bench/results/: a name <yyyy-mm-dd>-<machine>-<topic>.json (without
// folders) with the file's date, machine of [A-Za-z0-9_.], topic of [A-Za-z0-9_.-]; a commit that can be
// checked out; no wrong result of nearlight's own.
std::vector<std::string> find_committed_faults(std::string_view name, const ResultFile& file);

std::string to_json(const ResultFile& file);
// Keys and types must be exactly the schema's; find_faults() is not part of it. `origin` (a path) leads the
// error text.
Result<ResultFile> parse_results(std::string_view json, std::string_view origin);
// parse_results of a file's content; system_error when it cannot be read.
Result<ResultFile> read_results(const std::string& path);
// Writes a file that has no faults (else invalid_argument, naming the first): to a neighbour first, then
// renamed over `path`.
Status write_results(const ResultFile& file, const std::string& path);

}  // namespace nearlight::cli
