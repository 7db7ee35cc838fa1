#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include <nearlight/build_info.hpp>

namespace nearlight::cli {

namespace {

using bench::BenchOptions;

constexpr std::string_view kCommands[] = {"sol",  "bench", "compare", "report", "info",
                                          "demo", "tune",  "dump",    "trace",  "run"};

// An option whose text is turned into a value by `parse`, a function that returns a Result, an optional or a
// plain value.
template <class Target, class Parse>
CLI::Option* add(CLI::App& app, const std::string& names, Target& target, Parse parse,
                 const std::string& help) {
  return app.add_option_function<std::string>(
      names,
      [names, &target, parse](const std::string& text) {
        auto value = parse(text);
        const std::string flag = names.substr(0, names.find(','));
        if constexpr (requires { value.status(); }) {
          if (!value.ok()) throw CLI::ValidationError(flag, value.status().text());
          target = std::move(value).value();
        } else {
          if (!value)
            throw CLI::ValidationError(flag, "'" + text + "' is not one of those it takes (see --help)");
          target = *value;
        }
      },
      help);
}

std::optional<bool> parse_switch(const std::string& text) {
  if (text == "0") return false;
  if (text == "1") return true;
  return std::nullopt;
}

void describe_sizes(CLI::App& app, BenchOptions& options) {
  add(app, "-b,--minbytes", options.min_bytes, bench::parse_size,
      "smallest message, bytes [8]; K, M, G are powers of 1024")
      ->type_name("SIZE");
  add(app, "-e,--maxbytes", options.max_bytes, bench::parse_size, "largest message [1M]")->type_name("SIZE");
  auto* factor =
      app.add_option("-f,--stepfactor", options.step_factor, "each size is the one before times this [2]");
  add(app, "-i,--stepbytes", options.step_bytes, bench::parse_size, "each size is the one before plus this")
      ->type_name("SIZE")
      ->excludes(factor);
  app.add_option("--workload", options.workload,
                 "the sizes of one decode step of a model instead: a built-in name or a JSON file");
  app.add_option("--tp", options.tp, "ranks the workload is split over: the same as --ranks");
}

void describe_operation(CLI::App& app, BenchOptions& options) {
  add(app, "-d,--datatype", options.type, parse_data_type,
      std::string(data_type_names()) + " [float, or the workload's]")
      ->type_name("TYPE");
  add(app, "-o,--op", options.op, parse_reduce_op,
      std::string(reduce_op_names()) + " (mulsum: each rank's own factor first) [sum]")
      ->type_name("OP");
  app.add_option("-n,--iters", options.samples,
                 "samples per size [1000; 10000 with --percentiles, 4000 with --paired]");
  app.add_option("-w,--warmup_iters", options.warmup, "samples before each turn that do not count [5]");
  app.add_option("-m,--agg_iters", options.chain,
                 "operations a sample spans; its time is divided by it [graph 100, kernel 16, eager 10 on a "
                 "CPU and 1 on a GPU]");
  app.add_option("--rounds", options.rounds,
                 "turns that the implementations take within a size [10; 40 with --paired]");
  add(app, "-c,--check", options.check, parse_switch, "compare every result with a reference, 0 or 1 [1]")
      ->type_name("0|1");
  add(app, "--in-place", options.in_place, parse_switch,
      "also run with the output in the input's place, 0 or 1 [1; 0 with torch_symm_mem]")
      ->type_name("0|1");
}

void describe_ranks(CLI::App& app, BenchOptions& options) {
  add(app, "--backend", options.backend, bench::parse_backend,
      "best, host (CPU processes), cuda (GPUs without NCCL), nccl (GPUs, attached to NCCL) [best]")
      ->type_name("NAME");
  app.add_option("-g,--ngpus", options.gpus,
                 "GPUs (on the host: ranks) [all that reach each other; on the host 2]");
  app.add_option("-t,--nthreads", options.threads_per_gpu, "ranks on each GPU [1; 2 on a single GPU]");
  app.add_option("--ranks", options.ranks,
                 "ranks in all, spread over the GPUs in turn, instead of -g and -t");
  app.add_option("--timeout", options.timeout_ms, "limit of one wait inside an operation, ms [20000]");
}

void describe_measuring(CLI::App& app, BenchOptions& options) {
  add(app, "--mode", options.mode, parse_mode,
      std::string("kernel: many operations in one kernel (") + algorithm::kOwnCode +
          "); graph: a captured chain, replayed; eager: from call to completion [graph on a GPU, eager on a "
          "CPU]")
      ->type_name("MODE");
  app.add_option_function<std::size_t>(
      "-G,--cudagraph",
      [&options](const std::size_t& launches) {
        if (launches == 0) return;
        options.mode = Mode::graph;
        options.samples = launches;
      },
      "mode graph with that many replays: the same as --mode graph -n N");
  add(app, "--against", options.against, bench::parse_against,
      "peers to measure in turns with nearlight, by commas: nccl, nccl_sym (symmetric windows), "
      "torch_symm_mem (PyTorch's one-shot, two-shot and NCCL), nvshmem, openmpi (CPU)")
      ->type_name("NAMES");
  add(app, "--paired", options.paired, bench::parse_paired,
      "what a part of nearlight costs, on one communicator in turns with and without it: trace "
      "(NEARLIGHT_TRACE; also of all_gather, broadcast, all_to_all and send_recv), or deadline (limit, abort "
      "word and fault record of waits; on a GPU in mode kernel); sums of float and bfloat16")
      ->type_name("PART");
  app.add_option(
      "--fused", options.fused,
      "GPU: also the all-reduce with RMSNorm in one kernel (rms_norm) and with RMSNorm in a kernel behind "
      "it (then_rms_norm), nearlight's and the peers', of rows of so many elements; half and bfloat16, "
      "whole rows (-b, -e)");
  app.add_option("--spread", options.spread, "with --fused: force the CTAs that share a row, 1, 2, 4 or 8");
  app.add_option(
      "--gemv", options.gemv,
      "GPU: also a matrix of so many columns a rank times vectors (gemv), the same with the all-reduce of "
      "the products in one kernel (gemv_all_reduce), and the all-reduce in a kernel behind it (after_gemv), "
      "nearlight's and the peers'; of all_gather, a matrix of so many rows a rank times the gathered "
      "vectors, "
      "with the all-gather in one kernel (all_gather_gemv), and in a kernel behind it (then_gemv); half and "
      "bfloat16, whole products (-b, -e)");
  app.add_option("--tokens", options.tokens, "with --gemv: vectors, up to 16 [1]");
  add(app, "--algorithm", options.algorithms, bench::parse_algorithms,
      "force an algorithm: " + bench::algorithm_names() +
          "; on GPUs also several, beside what would be chosen")
      ->type_name("NAMES");
  add(app, "--protocol", options.protocols, bench::parse_protocols,
      "force a protocol: " + bench::protocol_names() + "; on GPUs also several, beside what would be chosen")
      ->type_name("NAMES");
  app.add_option("--grid", options.grid, "GPU: force the number of CTAs");
  app.add_option("--threads", options.threads, "GPU: force the threads of a CTA, a multiple of 32");
  add(app, "--scratch", options.scratch, bench::parse_scratch,
      "sizes, by commas; run with each: bytes of payload that a CTA (on a CPU: a rank) can take in from each "
      "other rank before a round ends, the same for all protocols; a multiple of 512 up to 8M [by protocol]")
      ->type_name("SIZES");
  app.add_option("--sm", options.sm,
                 "mode kernel: the SM that runs the operations, on every GPU [where the GPU puts them]");
  app.add_option(
      "--offsets", options.offsets,
      "modes kernel and graph: repeat with the slots at that many places in memory, instead of the fastest");
  app.add_option(
      "--jobs", options.jobs,
      "1 or 2 communicators that do the same at the same time, each with its own memory and stream "
      "(on a CPU: thread); the times are the first one's [1]");
  app.add_option(
      "--skew", options.skew_us,
      "microseconds that the last rank comes late to every start: seen as skew, not in the times [0]");
  app.add_flag("--percentiles", options.percentiles,
               "also print min, p50, p95, p99, p99.9, max, the ratios to the limits, where operations are "
               "called the CPU time that one takes of its thread, and how far apart the ranks came");
  app.add_option("--json", options.json, "write the results to this file")->type_name("FILE");
  app.add_option("--compare", options.compare, "compare with this result file, row by row")
      ->type_name("FILE");
}

void describe_bench(CLI::App& app, BenchOptions& options) {
  app.add_option("collective", options.collective, "what to run: " + bench::collective_names())
      ->required()
      ->type_name("NAME");
  describe_sizes(app, options);
  describe_operation(app, options);
  describe_ranks(app, options);
  describe_measuring(app, options);
  app.footer(
      "Examples:\n"
      "  nearlight bench all_reduce -b 8 -e 1M -f 2\n"
      "  nearlight bench all_reduce --backend host --ranks 2 -e 64K --percentiles --against openmpi\n"
      "  nearlight bench all_reduce -g 2 -d bfloat16 --against nccl,nccl_sym --percentiles --json run.json\n"
      "  nearlight bench all_gather -g 2 -d bfloat16 -b 256 -e 128K --against nccl,nccl_sym --percentiles\n"
      "  nearlight bench all_reduce -g 2 -b 128 -e 128 --mode kernel --offsets 48\n"
      "  nearlight bench all_reduce -g 2 -d bfloat16 -b 128 --against torch_symm_mem,nvshmem --percentiles\n"
      "  nearlight bench all_reduce -g 2 -b 128 -e 64K --jobs 2 --percentiles\n"
      "  nearlight bench all_reduce --workload llama-3.1-70b --percentiles\n"
      "  nearlight bench all_reduce -g 2 -d bfloat16 -b 128 -e 16K -f 128 --paired trace\n"
      "  nearlight bench all_reduce -g 2 -d bfloat16 -b 16K -e 512K --fused 8192 --against nccl\n"
      "  nearlight bench all_reduce -g 2 -d bfloat16 -b 16K -e 16K --gemv 4096 --against nccl\n"
      "  nearlight bench all_gather -g 2 -d bfloat16 -b 16K -e 16K --gemv 4096 --against nccl\n"
      "\n"
      "A sample's value is the slowest rank's. The table's time is the mean of the samples, as in "
      "nccl-tests.\n"
      "Result files hold the out-of-place variant. --compare is explained by `nearlight compare --help`.\n"
      "Exit status: 0 ok, 1 a result was wrong or an operation failed, 2 bad arguments, 3 this machine "
      "cannot do it, 4 something became slower (--compare).");
}

void describe_compare(CLI::App& app, CompareOptions& options) {
  app.add_option("old", options.old_path, "result file to compare with")->required()->type_name("OLD.json");
  app.add_option("new", options.new_path, "result file to judge")->required()->type_name("NEW.json");
  app.footer(
      std::string("Rows belong together when collective, bytes, dtype, op, ranks, mode, chain, impl, forced, "
                  "scratch and\n"
                  "jobs are equal. Where a file has several of a kind, the one with the median p50 stands "
                  "for them.\n") +
      kNoiseRule +
      " Differences of machine, driver and\n"
      "environment are told.\n"
      "\n"
      "Examples:\n"
      "  nearlight compare before.json after.json\n"
      "  nearlight bench all_reduce --compare before.json\n"
      "\n"
      "Exit status: 0 nothing became slower, 1 the new file has wrong results, 2 bad arguments or files, or "
      "nothing to\n"
      "compare, 4 something became slower.");
}

void describe_report(CLI::App& app, report::ReportOptions& options) {
  app.add_option("files", options.paths, "result files (bench --json)")->required()->type_name("FILE.json");
  app.add_option("-o,--output", options.out, "the page to write")->required()->type_name("OUT.html");
  app.footer(
      "Latency against size, ratio to the limit and percentiles of every implementation, with machine and "
      "command;\n"
      "what several files have measured alike, in one plot too. The page holds all it needs: no scripts, "
      "nothing "
      "from\n"
      "the network.\n"
      "\n"
      "Examples:\n"
      "  nearlight bench all_reduce --json run.json\n"
      "  nearlight report run.json -o run.html\n"
      "\n"
      "Exit status: 0, or 2 for bad arguments or files, 1 when the page cannot be written.");
}

void describe_demo(CLI::App& app, DemoOptions& options) {
  app.add_option("--workload", options.workload, "a built-in name or a JSON file [llama-3.1-70b]");
  app.add_option("--ranks", options.ranks, "ranks the model is split over [by what this machine has]")
      ->check(CLI::Range(1, bench::kMaxRanks));
  add(app, "--backend", options.backend, bench::parse_backend, "best, host, cuda, nccl [best]")
      ->type_name("NAME");
  app.add_option("--json", options.json, "write the results to this file")->type_name("FILE");
  app.footer(
      "Examples:\n"
      "  nearlight demo\n"
      "  nearlight demo --workload llama-3.1-8b --ranks 2\n"
      "\n"
      "The best backend is, in this order: two or more GPUs that reach each other, one GPU with several "
      "ranks,\n"
      "4 CPU processes over shared memory.\n"
      "Exit status: 0 ok, 1 a result was wrong or an operation failed, 2 bad arguments, 3 this machine "
      "cannot do it.");
}

void describe_info(CLI::App& app, InfoOptions& options) {
  auto* json = app.add_flag("--json", options.json, "as JSON");
  app.add_flag("--variables", options.variables, "the NEARLIGHT_* environment variables instead, as Markdown")
      ->excludes(json);
  app.footer(
      "Examples:\n"
      "  nearlight info\n"
      "  nearlight info --json\n"
      "  nearlight info --variables\n"
      "\n"
      "Exit status: 0; 2 for bad arguments.");
}

void describe_tune(CLI::App& app, tune::TuneOptions& options) {
  add(app, "--backend", options.backend, bench::parse_backend, "best, host, cuda, nccl [best]")
      ->type_name("NAME");
  app.add_option(
         "--ranks", options.ranks,
         "ranks that the table is for, spread over the GPUs in turn [all GPUs that reach each other; on "
         "the host 2]")
      ->check(CLI::Range(2, bench::kMaxRanks));
  app.add_option("--budget", options.budget_s, "seconds to measure, about [30]")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  app.add_option("-o,--output", options.output, "the file to write [route-table.json]")->type_name("FILE");
  app.footer(
      "Examples:\n"
      "  nearlight tune --backend host --ranks 4 -o four.json\n"
      "  NEARLIGHT_ROUTE_TABLE=four.json nearlight info\n"
      "\n"
      "Measures around each limit of the route table in force the two protocols that meet there, in turns: "
      "on\n"
      "GPUs in graphs, on CPUs call by call. A limit moves only over sizes where the other protocol is "
      "faster\n"
      "by more than noise. NEARLIGHT_ROUTE_TABLE=FILE puts the new table in force.\n"
      "Exit status: 0 ok, 1 a result was wrong or an operation failed, 2 bad arguments, 3 this machine "
      "cannot do it.");
}

void describe_dump(CLI::App& app, DumpOptions& options) {
  app.add_option("pid", options.pid, "the process to ask")
      ->required()
      ->check(CLI::Range(1, 1 << 22))
      ->type_name("PID");
  app.add_option("--timeout", options.timeout_ms, "how long to wait for all its answers, ms [10000]")
      ->check(CLI::Range(1, 600'000))
      ->type_name("MS");
  app.footer(
      "The process must have been started with NEARLIGHT_DUMP=1, by the same user. For each of its "
      "communicators:\n"
      "epochs, the failure if there is one, what has come from whom, the last calls. The calls are not "
      "disturbed.\n"
      "\n"
      "Examples:\n"
      "  NEARLIGHT_DUMP=1 ./my_program &\n"
      "  nearlight dump $!\n"
      "\n"
      "Exit status: 0 ok, 1 the process did not answer in time, 2 bad arguments, or a process that does not "
      "answer.");
}

void describe_trace(CLI::App& app, TraceOptions& options) {
  app.add_option("-o,--output", options.output, "the file to write [nearlight-trace.json]")
      ->type_name("FILE");
  app.footer(
      "nearlight trace [OPTIONS] -- CMD [ARGUMENTS]\n"
      "\n"
      "Runs CMD with NEARLIGHT_TRACE set, puts what its communicators wrote at their end into one file for "
      "Chrome\n"
      "or Perfetto, with an arrow from each message to its arrival, and prints on stderr for each rank how "
      "long it\n"
      "waited and for whom. The last epochs of each region are kept: 65536 on a CPU, 1024 on a GPU.\n"
      "\n"
      "Examples:\n"
      "  nearlight trace -- nearlight bench all_reduce --backend host -b 8 -e 1K\n"
      "  nearlight trace -o step.json -- ./my_program\n"
      "\n"
      "Exit status: CMD's where it is not 0; else 0 ok, 1 the file cannot be written, 2 bad arguments, 3 "
      "nothing was\n"
      "traced.");
}

void describe_run(CLI::App& app, RunOptions& options) {
  app.add_flag("--stats", options.stats,
               "print at the end, on stderr, what was taken, what was passed on to NCCL, and why");
  app.add_option("--nccl", options.nccl,
                 "the libnccl.so.2 to stand in front of [the one that CMD would load]")
      ->type_name("PATH");
  app.add_flag("!--no-audit", options.audit,
               "only LD_PRELOAD: for programs that are linked to NCCL, where LD_AUDIT is in the way");
  app.footer(
      "nearlight run [OPTIONS] -- CMD [ARGUMENTS]\n"
      "\n"
      "Runs CMD, which knows nothing of nearlight, with the drop-in for NCCL in front of the NCCL that it "
      "has: AllReduce\n"
      "goes by nearlight where that is faster, all else to NCCL. For programs that are linked to NCCL by "
      "LD_PRELOAD, for\n"
      "those that open it themselves by LD_AUDIT, both inherited by what CMD starts. All ranks must be "
      "started "
      "like this.\n"
      "docs/guide/drop-in.md tells more.\n"
      "\n"
      "Examples:\n"
      "  nearlight run -- python serve.py\n"
      "  nearlight run --stats -- torchrun --nproc-per-node 2 train.py\n"
      "\n"
      "Exit status: CMD's; 2 bad arguments, 3 this build has no drop-in.");
}

}  // namespace

Result<Invocation> parse_command_line(const std::vector<std::string>& arguments) {
  // It reads its own arguments, --help among them.
  if (!arguments.empty() && arguments[0] == "sol") {
    return Invocation(SolArguments{{arguments.begin() + 1, arguments.end()}});
  }

  if (!arguments.empty() && !arguments[0].starts_with('-') &&
      std::find(std::begin(kCommands), std::end(kCommands), arguments[0]) == std::end(kCommands)) {
    return failure(Code::invalid_argument,
                   "there is no command '%s'; known are sol, bench, compare, report, info, demo, tune, "
                   "dump, trace and run",
                   arguments[0].c_str());
  }

  CLI::App app("Low-latency collectives for GPUs and CPUs, and the meter they are held against.",
               "nearlight");
  BenchOptions bench_options;
  CompareOptions compare_options;
  report::ReportOptions report_options;
  DemoOptions demo_options;
  InfoOptions info_options;
  tune::TuneOptions tune_options;
  DumpOptions dump_options;
  TraceOptions trace_options;
  RunOptions run_options;
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("nearlight ") + build_info::version + " (" + build_info::commit + ")");
  app.add_subcommand("sol", "the least times of this machine: round trip, one way, launch, bandwidth");
  CLI::App* bench =
      app.add_subcommand("bench", "time collectives against peers and against the limits of this machine");
  CLI::App* compare = app.add_subcommand("compare", "two result files: what became slower, what faster");
  CLI::App* report = app.add_subcommand("report", "result files as one HTML page with plots");
  CLI::App* info =
      app.add_subcommand("info", "what was built, what this machine offers, what would be chosen");
  CLI::App* demo =
      app.add_subcommand("demo", "the all-reduces of one decode step of a model, checked and timed");
  CLI::App* tune = app.add_subcommand(
      "tune", "measure where protocols should take over from each other, for this machine");
  CLI::App* dump = app.add_subcommand("dump", "what the ranks of a running process do and wait for");
  CLI::App* trace =
      app.add_subcommand("trace", "run a program and write down when its ranks sent and waited");
  CLI::App* run = app.add_subcommand("run", "run a program that uses NCCL with nearlight in front of it");
  app.footer(
      "Examples:\n"
      "  nearlight demo\n"
      "  nearlight sol\n"
      "  nearlight bench all_reduce --percentiles\n"
      "\n"
      "`nearlight COMMAND --help` tells more about each.");
  describe_bench(*bench, bench_options);
  describe_compare(*compare, compare_options);
  describe_report(*report, report_options);
  describe_info(*info, info_options);
  describe_demo(*demo, demo_options);
  describe_tune(*tune, tune_options);
  describe_dump(*dump, dump_options);
  describe_trace(*trace, trace_options);
  describe_run(*run, run_options);

  // What follows is the other program's own.
  auto own_end = arguments.end();
  if (!arguments.empty() && (arguments[0] == "trace" || arguments[0] == "run")) {
    own_end = std::find(arguments.begin(), arguments.end(), "--");
    auto& command = arguments[0] == "trace" ? trace_options.command : run_options.command;
    if (own_end != arguments.end()) command.assign(own_end + 1, arguments.end());
  }
  try {
    app.parse(std::vector<std::string>(std::make_reverse_iterator(own_end), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return Invocation(PrintText{app.help()});
  } catch (const CLI::CallForVersion& version) {
    return Invocation(PrintText{std::string(version.what()) + "\n"});
  } catch (const CLI::ParseError& error) {
    return failure(Code::invalid_argument, "%s", error.what());
  }

  if (compare->parsed()) return Invocation(compare_options);
  if (report->parsed()) return Invocation(report_options);
  if (info->parsed()) return Invocation(info_options);
  if (tune->parsed()) return Invocation(tune_options);
  if (dump->parsed()) return Invocation(dump_options);
  if (trace->parsed()) {
    if (trace_options.command.empty())
      return failure(Code::invalid_argument, "trace needs a command: nearlight trace -- CMD [ARGUMENTS]");
    return Invocation(trace_options);
  }
  if (run->parsed()) {
    if (run_options.command.empty())
      return failure(Code::invalid_argument, "run needs a command: nearlight run -- CMD [ARGUMENTS]");
    return Invocation(run_options);
  }
  if (demo->parsed()) {
    demo_options.arguments = arguments;
    return Invocation(demo_options);
  }
  // An increment in bytes replaces the factor.
  if (bench_options.step_bytes > 0) bench_options.step_factor = 0;
  bench_options.arguments = arguments;
  NL_TRY(bench::validate(bench_options));
  return Invocation(bench_options);
}

}  // namespace nearlight::cli
