// Reads a JSON document whose members are known beforehand: each is taken once by name and type, and nothing
// else may be there.
//
//   NL_TRY_ASSIGN(JsonReader file, JsonReader::parse(text, path));
//   file.take("name", name);
//   file.take("layers", layers);
//   NL_TRY(file.finish());          // the first thing that was missing, of the wrong type, or left over
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace nearlight::cli {

class JsonReader {
 public:
  // `origin` (a path) leads every error text. The document must be an object; a key given twice is an error.
  static Result<JsonReader> parse(std::string_view text, std::string_view origin);

  // Whether an optional member is there.
  bool has(const char* key) const;
  // After a failure the targets stay as they are; finish() tells.
  void take(const char* key, std::string& out);
  void take(const char* key, double& out);
  void take(const char* key, std::optional<double>& out);  // null: absent
  void take(const char* key, std::uint64_t& out);
  void take(const char* key, int& out);                                 // 0 or more
  void take(const char* key, std::vector<int>& out);                    // likewise
  void take(const char* key, std::map<std::string, std::string>& out);  // an object of texts
  Result<JsonReader> take_object(const char* key);
  Result<std::vector<JsonReader>> take_objects(const char* key);

  // The failure of a member that was read but makes no sense: "<origin>: <place>.<key> <what>".
  Status fault(const char* key, const std::string& what) const;
  Status finish();

 private:
  struct Document;
  JsonReader(std::shared_ptr<const Document> document, const void* object, std::string place);
  const void* find(const char* key);
  void fail(const char* key, const std::string& what);

  std::shared_ptr<const Document> document_;
  const void* object_;  // the JSON object within it
  std::string place_;   // "machine", "rows[3]"; "" for the document
  std::set<std::string> taken_;
  Status status_;
};

}  // namespace nearlight::cli
