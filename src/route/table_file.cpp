#include "route/table_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <vector>

#include "base/unique_fd.hpp"
#include "route/flat_json.hpp"

namespace nearlight::route {

namespace {

constexpr int kMostRanks = 64;

const JsonMember* find(const std::vector<JsonMember>& members, std::string_view key) {
  const auto found =
      std::find_if(members.begin(), members.end(), [key](const JsonMember& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

// As in the file: a text in quotes.
std::string shown(const JsonMember& member) {
  return member.is_text ? "\"" + member.value + "\"" : member.value;
}

Result<std::uint64_t> whole_number(const JsonMember& member, std::uint64_t lowest, std::uint64_t highest,
                                   std::uint64_t step = 1) {
  std::uint64_t value = 0;
  const char* const first = member.value.data();
  const char* const last = first + member.value.size();
  const auto [end, error] = std::from_chars(first, last, value);
  const bool number = !member.is_text && error == std::errc() && end == last &&
                      (member.value.size() == 1 || member.value[0] != '0');
  if (number && value >= lowest && value <= highest && value % step == 0) return value;
  const std::string multiple = step == 1 ? "" : ", a multiple of " + std::to_string(step);
  return failure(Code::invalid_argument,
                 "%s: is %s; it takes a whole number from %" PRIu64 " to %" PRIu64 "%s", member.key.c_str(),
                 shown(member).c_str(), lowest, highest, multiple.c_str());
}

Result<std::string> text_of(const std::vector<JsonMember>& members, const char* key) {
  const JsonMember* const member = find(members, key);
  if (member == nullptr) return failure(Code::invalid_argument, "%s: is missing", key);
  if (!member->is_text) {
    return failure(Code::invalid_argument, "%s: is %s; it takes a text", key, shown(*member).c_str());
  }
  return member->value;
}

Status check_schema(const std::vector<JsonMember>& members) {
  const JsonMember* const member = find(members, "schema");
  if (member == nullptr) return failure(Code::invalid_argument, "schema: is missing");
  if (!member->is_text && member->value == std::to_string(kTableSchema)) return {};
  return failure(Code::invalid_argument, "schema: is %s; this version reads %d", shown(*member).c_str(),
                 kTableSchema);
}

Status check_target(const std::vector<JsonMember>& members, const Target& target) {
  const char* const wanted = target.gpu ? "cuda" : "host";
  NL_TRY_ASSIGN(const std::string backend, text_of(members, "backend"));
  if (backend != "cuda" && backend != "host") {
    return failure(Code::invalid_argument, "backend: is \"%s\"; it takes cuda or host", backend.c_str());
  }
  if (backend != wanted) {
    return failure(Code::invalid_argument, "backend: the table was made for %s, these are ranks of %s",
                   backend.c_str(), wanted);
  }
  if (!target.gpu) return {};
  NL_TRY_ASSIGN(const std::string gpu, text_of(members, "gpu"));
  if (gpu == target.gpu_name) return {};
  return failure(Code::invalid_argument, "gpu: the table was made for \"%s\", this is \"%s\"", gpu.c_str(),
                 target.gpu_name.c_str());
}

Result<std::optional<Table>> table_of(std::string_view text, const Target& target) {
  NL_TRY_ASSIGN(const auto members, parse_flat_json(text));
  NL_TRY(check_schema(members));
  NL_TRY(check_target(members, target));
  const JsonMember* const nranks_member = find(members, "nranks");
  if (nranks_member == nullptr) return failure(Code::invalid_argument, "nranks: is missing");
  NL_TRY_ASSIGN(const std::uint64_t nranks, whole_number(*nranks_member, 2, kMostRanks));
  if (find(members, "made_by") != nullptr) NL_TRY(text_of(members, "made_by").status());

  Table table = shipped_table(target);
  table.origin = Origin::file;
  const auto fields = fields_of(target.gpu);
  for (const JsonMember& member : members) {
    if (member.key == "schema" || member.key == "backend" || member.key == "nranks" ||
        member.key == "made_by" || (target.gpu && member.key == "gpu")) {
      continue;
    }
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&member](const TableField& f) { return f.name == member.key; });
    if (field == fields.end()) {
      return failure(Code::invalid_argument, "%s: is no field of a table for %s", member.key.c_str(),
                     target.gpu ? "cuda" : "host");
    }
    NL_TRY_ASSIGN(table.*field->value, whole_number(member, field->lowest, field->highest, field->step));
  }
  if (nranks != static_cast<std::uint64_t>(target.nranks)) return std::optional<Table>();
  return std::optional<Table>(table);
}

Result<std::string> read_text(const std::string& path) {
  // Not to be held up by a pipe that nobody writes.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_failure("open " + path, errno);
  struct stat facts = {};
  if (::fstat(file.get(), &facts) != 0) return system_failure("fstat " + path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return failure(Code::invalid_argument, "%s: is no regular file", path.c_str());
  }
  std::string text(kMaxTableFileBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ::ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("read " + path, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxTableFileBytes) {
    return failure(Code::invalid_argument, "%s: has more than %zu bytes", path.c_str(), kMaxTableFileBytes);
  }
  text.resize(size);
  return text;
}

}  // namespace

Result<std::optional<Table>> parse_table(std::string_view text, const std::string& origin,
                                         const Target& target) {
  auto table = table_of(text, target);
  NL_TRY(table.status().with_context(origin));
  return table;
}

Result<std::optional<Table>> read_table_file(const std::string& path, const Target& target) {
  NL_TRY_ASSIGN(const std::string text, read_text(path));
  return parse_table(text, path, target);
}

std::string table_text(const Table& table, const Target& target, std::string_view made_by) {
  std::string text = "{\n  \"schema\": " + std::to_string(kTableSchema);
  const auto add_text = [&text](const char* key, std::string_view value) {
    text += std::string(",\n  \"") + key + "\": \"" + std::string(value) + "\"";
  };
  const auto add_number = [&text](const char* key, std::uint64_t value) {
    text += std::string(",\n  \"") + key + "\": " + std::to_string(value);
  };
  add_text("backend", target.gpu ? "cuda" : "host");
  if (target.gpu) add_text("gpu", target.gpu_name);
  add_number("nranks", static_cast<std::uint64_t>(target.nranks));
  for (const TableField& field : fields_of(target.gpu)) add_number(field.name, table.*field.value);
  add_text("made_by", made_by);
  return text + "\n}\n";
}

}  // namespace nearlight::route
