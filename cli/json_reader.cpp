#include "cli/json_reader.hpp"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace nearlight::cli {

using Json = nlohmann::ordered_json;

struct JsonReader::Document {
  Json root;
  std::string origin;
};

namespace {

const Json& json_of(const void* object) { return *static_cast<const Json*>(object); }

bool is_small(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<int>::max();
}

// Finds keys that are given twice, which the library would drop silently.
class TwiceGiven {
 public:
  bool operator()(int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && found_.empty()) found_ = key;
    }
    return true;
  }
  const std::string& found() const { return found_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string found_;
};

}  // namespace

JsonReader::JsonReader(std::shared_ptr<const Document> document, const void* object, std::string place)
    : document_(std::move(document)), object_(object), place_(std::move(place)) {}

Result<JsonReader> JsonReader::parse(std::string_view text, std::string_view origin) {
  auto document = std::make_shared<Document>();
  document->origin = origin;
  TwiceGiven twice;
  try {
    document->root = Json::parse(text, std::ref(twice));
  } catch (const Json::parse_error& error) {
    return failure(Code::invalid_argument, "%s: no JSON at byte %zu", document->origin.c_str(), error.byte);
  }
  if (!document->root.is_object()) {
    return failure(Code::invalid_argument, "%s: is no JSON object", document->origin.c_str());
  }
  if (!twice.found().empty()) {
    return failure(Code::invalid_argument, "%s: %s is given twice", document->origin.c_str(),
                   twice.found().c_str());
  }
  const void* root = &document->root;
  return JsonReader(std::move(document), root, "");
}

Status JsonReader::fault(const char* key, const std::string& what) const {
  return failure(Code::invalid_argument, "%s: %s%s%s %s", document_->origin.c_str(), place_.c_str(),
                 place_.empty() ? "" : ".", key, what.c_str());
}

void JsonReader::fail(const char* key, const std::string& what) {
  if (status_.ok()) status_ = fault(key, what);
}

const void* JsonReader::find(const char* key) {
  if (!status_.ok()) return nullptr;
  taken_.insert(key);
  const Json& object = json_of(object_);
  const auto found = object.find(key);
  if (found != object.end()) return &*found;
  fail(key, "is missing");
  return nullptr;
}

bool JsonReader::has(const char* key) const { return json_of(object_).contains(key); }

void JsonReader::take(const char* key, std::string& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!json_of(value).is_string()) return fail(key, "is no text");
  out = json_of(value).get<std::string>();
}

void JsonReader::take(const char* key, double& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!json_of(value).is_number()) return fail(key, "is no number");
  out = json_of(value).get<double>();
}

void JsonReader::take(const char* key, std::optional<double>& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (json_of(value).is_null()) return out.reset();
  if (!json_of(value).is_number()) return fail(key, "is neither a number nor null");
  out = json_of(value).get<double>();
}

void JsonReader::take(const char* key, std::uint64_t& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!json_of(value).is_number_unsigned()) return fail(key, "is no whole number of 0 or more");
  out = json_of(value).get<std::uint64_t>();
}

void JsonReader::take(const char* key, int& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!is_small(json_of(value))) return fail(key, "is no whole number from 0 to 2147483647");
  out = json_of(value).get<int>();
}

void JsonReader::take(const char* key, std::vector<int>& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!json_of(value).is_array()) return fail(key, "is no list");
  std::vector<int> list;
  for (const Json& entry : json_of(value)) {
    if (!is_small(entry)) return fail(key, "holds what is no whole number from 0 to 2147483647");
    list.push_back(entry.get<int>());
  }
  out = std::move(list);
}

void JsonReader::take(const char* key, std::map<std::string, std::string>& out) {
  const void* value = find(key);
  if (value == nullptr) return;
  if (!json_of(value).is_object()) return fail(key, "is no object");
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : json_of(value).items()) {
    if (!text.is_string()) return fail(key, "holds '" + name + "', which is no text");
    texts[name] = text.get<std::string>();
  }
  out = std::move(texts);
}

Result<JsonReader> JsonReader::take_object(const char* key) {
  const void* value = find(key);
  if (value != nullptr && !json_of(value).is_object()) fail(key, "is no object");
  if (!status_.ok()) return status_;
  return JsonReader(document_, value, place_.empty() ? key : place_ + "." + key);
}

Result<std::vector<JsonReader>> JsonReader::take_objects(const char* key) {
  const void* value = find(key);
  if (value != nullptr && !json_of(value).is_array()) fail(key, "is no list");
  if (!status_.ok()) return status_;
  std::vector<JsonReader> list;
  for (const Json& entry : json_of(value)) {
    const std::string name = std::string(key) + "[" + std::to_string(list.size()) + "]";
    if (!entry.is_object()) {
      fail(name.c_str(), "is no object");
      return status_;
    }
    list.push_back(JsonReader(document_, &entry, place_.empty() ? name : place_ + "." + name));
  }
  return list;
}

Status JsonReader::finish() {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : json_of(object_).items()) {
    if (!taken_.contains(key)) fail(key.c_str(), "is not known here");
  }
  return status_;
}

}  // namespace nearlight::cli
