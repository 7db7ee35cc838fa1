#include <nlohmann/json.hpp>

#include "cli/info_facts.hpp"

namespace nearlight::cli {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json routes_json(const std::vector<RouteFact>& routes) {
  Json list = Json::array();
  for (const RouteFact& route : routes) {
    list.push_back({{"bytes", route.bytes},
                    {"algorithm", route.algorithm},
                    {"protocol", route.protocol},
                    {"grid", route.grid},
                    {"threads", route.threads},
                    {"reason", route.reason}});
  }
  return list;
}

Json table_json(const TableFact& table) {
  Json json = {{"source", table.source}, {"problem", or_null(table.problem)}};
  for (const auto& [name, value] : table.numbers) json["numbers"][name] = value;
  return json;
}

Json gpus_json(const probe::GpuFacts& gpus) {
  Json list = Json::array();
  for (const auto& device : gpus.devices) {
    Json links = Json::array();
    for (const probe::Link link : device.links) links.push_back(probe::name_of(link));
    list.push_back({{"name", device.name},
                    {"memory_bytes", device.memory_bytes},
                    {"sms", device.sm_count},
                    {"compute_capability",
                     std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor)},
                    {"links", links}});
  }
  return list;
}

}  // namespace

std::string info_json(const InfoFacts& facts) {
  Json json;
  json["version"] = facts.version;
  json["commit"] = facts.commit;
  json["build"] = {{"type", facts.build_type},
                   {"compiler", facts.compiler},
                   {"cuda", or_null(facts.cuda_compiler)},
                   {"nccl_headers", facts.nccl_headers == "no" ? Json() : Json(facts.nccl_headers)}};
  json["cpu"] = facts.cpu;
  json["place"] = or_null(facts.place);
  json["place_problem"] = or_null(facts.place_problem);
  json["backends"] = Json::array();
  for (const BackendFact& backend : facts.backends) {
    json["backends"].push_back(
        {{"name", backend.name}, {"available", backend.available}, {"why", backend.why}});
  }
  json["driver"] = or_null(facts.gpus.driver);
  json["cuda"] = or_null(facts.gpus.cuda);
  json["gpus"] = gpus_json(facts.gpus);
  json["gpu_problem"] = or_null(facts.gpus.problem);
  json["lines"] = facts.lines;
  json["nccl"] = {{"path", or_null(facts.nccl_path)},
                  {"version", or_null(facts.nccl_version)},
                  {"faults", or_null(facts.nccl_faults)},
                  {"problem", or_null(facts.nccl_problem)}};
  json["route_tables"] = {{"host_2_ranks", table_json(facts.host_table)},
                          {"cuda_2_ranks", table_json(facts.gpu_table)}};
  json["routes"] = {{"host_2_ranks_f32_sum", routes_json(facts.host_routes)},
                    {"cuda_2_ranks_f32_sum", routes_json(facts.gpu_routes)}};
  json["limits"] = Json::object();
  for (const auto& [name, value] : facts.limits) json["limits"][name] = value;
  return json.dump(2);
}

}  // namespace nearlight::cli
