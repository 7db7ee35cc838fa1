#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/json_reader.hpp"
#include "cli/results.hpp"
#include "cli/text_file.hpp"

namespace nearlight::cli {

namespace {

using Json = nlohmann::ordered_json;

// Six significant digits; keeps the order of the values.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(rounded(*value)) : Json(nullptr);
}

Json json_of(const ResultRow& row) {
  Json json;
  json["collective"] = row.collective;
  json["bytes"] = row.bytes;
  json["dtype"] = row.dtype;
  json["op"] = row.op;
  json["ranks"] = row.ranks;
  json["mode"] = name_of(row.mode);
  json["chain"] = row.chain;
  json["impl"] = row.impl;
  json["algorithm"] = row.algorithm;
  json["protocol"] = row.protocol;
  json["grid"] = row.grid;
  if (!row.forced.empty()) json["forced"] = row.forced;
  if (row.scratch != 0) json["scratch"] = row.scratch;
  if (row.jobs != 1) json["jobs"] = row.jobs;
  json["min_us"] = rounded(row.min_us);
  json["p50_us"] = rounded(row.p50_us);
  json["p95_us"] = rounded(row.p95_us);
  json["p99_us"] = rounded(row.p99_us);
  json["p999_us"] = number_or_null(row.p999_us);
  json["max_us"] = rounded(row.max_us);
  if (row.cpu_us) json["cpu_us"] = rounded(*row.cpu_us);
  if (row.skew_us) json["skew_us"] = rounded(*row.skew_us);
  if (row.cost) {
    json["cost_percent"] = rounded(row.cost->percent);
    json["cost_low_percent"] = rounded(row.cost->low_percent);
    json["cost_high_percent"] = rounded(row.cost->high_percent);
  }
  json["samples"] = row.samples;
  json["wrong"] = row.wrong;
  json["ratio_sol"] = rounded(row.ratio_sol);
  json["ratio_limit"] = rounded(row.ratio_limit);
  return json;
}

// Environment and command lines may hold any bytes; those that are no UTF-8 become U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string to_json(const ResultFile& file) {
  Json head;
  head["schema"] = 1;
  head["date"] = file.date;
  head["commit"] = file.commit;
  head["command"] = file.command;
  head["env"] = Json::object();
  for (const auto& [name, value] : file.env) head["env"][name] = value;
  Json& machine = head["machine"];
  machine["gpu"] = file.machine.gpu;
  machine["gpus"] = file.machine.gpus;
  machine["link"] = file.machine.link;
  machine["driver"] = file.machine.driver;
  machine["cuda"] = file.machine.cuda;
  machine["nccl"] = file.machine.nccl;
  machine["cpu"] = file.machine.cpu;
  head["l2rtt_us"] = rounded(file.floors.l2rtt_us);
  head["one_way_us"] = rounded(file.floors.one_way_us);
  head["sol_us"] = rounded(file.floors.sol_us);
  head["store_gbs"] = rounded(file.floors.store_gbs);
  head["launch_floor_us"] = number_or_null(file.floors.launch_floor_us);
  head["launch_floor_pdl_us"] = number_or_null(file.floors.launch_floor_pdl_us);

  if (!file.peers.empty()) {
    head["peers"] = Json::object();
    for (const auto& [impl, settings] : file.peers) head["peers"][impl] = settings;
  }

  // One member and one row a line, so that differences between two files are easy to see.
  std::string text = "{\n";
  for (const auto& [key, value] : head.items()) text += "  " + Json(key).dump() + ": " + dump(value) + ",\n";
  text += "  \"rows\": [";
  for (std::size_t i = 0; i < file.rows.size(); ++i)
    text += (i == 0 ? "\n    " : ",\n    ") + dump(json_of(file.rows[i]));
  text += file.rows.empty() ? "]\n}\n" : "\n  ]\n}\n";
  return text;
}

Status write_results(const ResultFile& file, const std::string& path) {
  const std::vector<std::string> faults = find_faults(file);
  if (!faults.empty()) {
    return failure(Code::invalid_argument, "%s was not written: %s%s", path.c_str(), faults[0].c_str(),
                   faults.size() > 1 ? " (and more)" : "");
  }
  return write_text_file(path, to_json(file));
}

namespace {

Status take_machine(JsonReader members, Machine& machine) {
  members.take("gpu", machine.gpu);
  members.take("gpus", machine.gpus);
  members.take("link", machine.link);
  members.take("driver", machine.driver);
  members.take("cuda", machine.cuda);
  members.take("nccl", machine.nccl);
  members.take("cpu", machine.cpu);
  return members.finish();
}

// Members that came later are absent from older files.
Status take_row(JsonReader& members, ResultRow& row) {
  std::string mode;
  members.take("collective", row.collective);
  members.take("bytes", row.bytes);
  members.take("dtype", row.dtype);
  members.take("op", row.op);
  members.take("ranks", row.ranks);
  members.take("mode", mode);
  members.take("chain", row.chain);
  members.take("impl", row.impl);
  members.take("algorithm", row.algorithm);
  members.take("protocol", row.protocol);
  members.take("grid", row.grid);
  if (members.has("forced")) members.take("forced", row.forced);
  if (members.has("scratch")) members.take("scratch", row.scratch);
  if (members.has("jobs")) members.take("jobs", row.jobs);
  members.take("min_us", row.min_us);
  members.take("p50_us", row.p50_us);
  members.take("p95_us", row.p95_us);
  members.take("p99_us", row.p99_us);
  members.take("p999_us", row.p999_us);
  members.take("max_us", row.max_us);
  if (members.has("cpu_us")) members.take("cpu_us", row.cpu_us.emplace());
  if (members.has("skew_us")) members.take("skew_us", row.skew_us.emplace());
  if (members.has("cost_percent")) {
    Cost& cost = row.cost.emplace();
    members.take("cost_percent", cost.percent);
    members.take("cost_low_percent", cost.low_percent);
    members.take("cost_high_percent", cost.high_percent);
  }
  members.take("samples", row.samples);
  members.take("wrong", row.wrong);
  members.take("ratio_sol", row.ratio_sol);
  members.take("ratio_limit", row.ratio_limit);
  NL_TRY(members.finish());
  const std::optional<Mode> known = parse_mode(mode);
  if (!known) return members.fault("mode", "is '" + mode + "', none of kernel, graph, eager");
  row.mode = *known;
  if (members.has("forced") && row.forced.empty()) return members.fault("forced", "is empty");
  if (members.has("scratch") && row.scratch == 0) return members.fault("scratch", "is 0");
  if (members.has("jobs") && row.jobs < 2) return members.fault("jobs", "is below 2");
  return {};
}

}  // namespace

Result<ResultFile> parse_results(std::string_view json, std::string_view origin) {
  NL_TRY_ASSIGN(JsonReader members, JsonReader::parse(json, origin));
  ResultFile file;
  int schema = 0;
  members.take("schema", schema);
  members.take("date", file.date);
  members.take("commit", file.commit);
  members.take("command", file.command);
  members.take("env", file.env);
  NL_TRY_ASSIGN(const JsonReader machine, members.take_object("machine"));
  members.take("l2rtt_us", file.floors.l2rtt_us);
  members.take("one_way_us", file.floors.one_way_us);
  members.take("sol_us", file.floors.sol_us);
  members.take("store_gbs", file.floors.store_gbs);
  members.take("launch_floor_us", file.floors.launch_floor_us);
  members.take("launch_floor_pdl_us", file.floors.launch_floor_pdl_us);
  if (members.has("peers")) members.take("peers", file.peers);
  NL_TRY_ASSIGN(std::vector<JsonReader> rows, members.take_objects("rows"));
  NL_TRY(members.finish());
  if (schema != 1) return members.fault("schema", "is " + std::to_string(schema) + ", not 1");
  NL_TRY(take_machine(machine, file.machine));
  for (JsonReader& row : rows) NL_TRY(take_row(row, file.rows.emplace_back()));
  return file;
}

Result<ResultFile> read_results(const std::string& path) {
  NL_TRY_ASSIGN(const std::string text, read_text_file(path));
  return parse_results(text, path);
}

}  // namespace nearlight::cli
