#include "data/data_description.h"

#include <fmt/core.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "format/json.h"

namespace temper {
namespace {

// All of DataStatistics but its bounds of weights, its problems and its unknown tokens.
constexpr std::pair<const char*, int64_t DataStatistics::*> kCounts[] = {
    {"rows", &DataStatistics::rows},
    {"bad_rows", &DataStatistics::bad_rows},
    {"cut_rows", &DataStatistics::cut_rows},
    {"cut_tokens", &DataStatistics::cut_tokens},
    {"left_out_rows", &DataStatistics::left_out_rows},
    {"dropped_rows", &DataStatistics::dropped_rows},
    {"split_borders", &DataStatistics::split_borders},
    {"split_rows", &DataStatistics::split_rows},
    {"split_samples", &DataStatistics::split_samples},
    {"split_tokens", &DataStatistics::split_tokens},
    {"unsplit_tokens", &DataStatistics::unsplit_tokens},
    {"longest_row", &DataStatistics::longest_row},
    {"samples", &DataStatistics::samples},
    {"tokens", &DataStatistics::tokens},
    {"supervised", &DataStatistics::supervised},
    {"weighted", &DataStatistics::weighted},
    {"stopping_samples", &DataStatistics::stopping_samples},
};
constexpr std::pair<const char*, Finding DataStatistics::*> kFindings[] = {
    {"empty_answers", &DataStatistics::empty_answers},
    {"unprinted_turns", &DataStatistics::unprinted_turns},
    {"open_turns", &DataStatistics::open_turns},
};
constexpr std::pair<const char*, FieldFindings DataStatistics::*> kFieldFindings[] = {
    {"unprinted_fields", &DataStatistics::unprinted_fields},
    {"unread_fields", &DataStatistics::unread_fields},
    {"absent_fields", &DataStatistics::absent_fields},
};
static_assert(sizeof(DataStatistics) == std::size(kCounts) * sizeof(int64_t) + std::size(kFindings) * sizeof(Finding) +
                                            std::size(kFieldFindings) * sizeof(FieldFindings) +
                                            2 * sizeof(TokenWeight) + sizeof(DataStatistics::problems) +
                                            sizeof(UnknownTokens),
              "a count or a finding is missing above");

// Leaves out the path with which a message begins: the file may have another one when the message is read back.
Json WithoutPath(const std::string& message, const std::vector<DataFile>& files) {
  size_t file = files.size(), longest = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    if (path.size() <= longest || !message.starts_with(path)) continue;
    file = i;
    longest = path.size();
  }
  Json json = {{"text", message.substr(longest)}};
  if (longest > 0) json["file"] = file;
  return json;
}

Json FindingJson(const Finding& found, const std::vector<DataFile>& files) {
  Json json = WithoutPath(found.first, files);
  json["count"] = found.count;
  return json;
}

Result<std::string> WithPath(const Json& json, const std::vector<std::string>& paths, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, StringOr(json, "text", "", where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t file, IntOr(json, "file", -1, where));
  if (file >= static_cast<int64_t>(paths.size())) return Corrupt(where + " is damaged: a message is of no file");
  return file < 0 ? text : paths[static_cast<size_t>(file)] + text;
}

Result<Finding> FindingOf(const Json& json, const char* name, const std::vector<std::string>& paths,
                          const std::string& where) {
  if (!json.is_object()) return Corrupt(fmt::format("{} is damaged: {} is of another type", where, name));
  Finding out;
  TEMPER_ASSIGN_OR_RETURN(out.count, RequireInt(json, "count", where));
  TEMPER_ASSIGN_OR_RETURN(out.first, WithPath(json, paths, where));
  return out;
}

}  // namespace

std::string FormatDescription(const DataDescription& about, const std::string& key) {
  Json files = Json::array(), statistics = Json::object();
  for (const DataFile& file : about.files) {
    files.push_back({{"format", static_cast<int>(file.format)},
                     {"format_place", file.format_place},
                     {"rows", file.rows},
                     {"first_sample", file.first_sample}});
  }
  for (const auto& [name, count] : kCounts) statistics[name] = about.statistics.*count;
  for (const auto& [name, finding] : kFindings) statistics[name] = FindingJson(about.statistics.*finding, about.files);
  for (const auto& [name, findings] : kFieldFindings) {
    Json fields = Json::object();
    for (const auto& [field, found] : (about.statistics.*findings).by_name) {
      fields[field] = FindingJson(found, about.files);
    }
    statistics[name] = std::move(fields);
  }
  statistics["least_weight"] = about.statistics.least_weight;
  statistics["largest_weight"] = about.statistics.largest_weight;
  Json problems = Json::array();
  for (const std::string& problem : about.statistics.problems) problems.push_back(WithoutPath(problem, about.files));
  statistics["problems"] = std::move(problems);
  const UnknownTokens& unknown = about.statistics.unknown;
  Json characters = Json::object();
  for (const auto& [character, n] : unknown.MostFrequent()) characters[character] = n;
  statistics["unknown"] = {{"token", unknown.token}, {"count", unknown.count}, {"characters", std::move(characters)}};
  const Json json = {{"key", key}, {"files", std::move(files)}, {"statistics", std::move(statistics)}};
  return DumpJson(json);
}

Result<DataDescription> ParseDescription(std::string_view text, const std::string& key,
                                         const std::vector<std::string>& paths, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  if (!json.is_object()) return Corrupt(where + " is damaged: its description is no object");
  TEMPER_ASSIGN_OR_RETURN(const std::string written, StringOr(json, "key", "", where));
  if (written != key) return NotFound(where + " holds the tokens of other data or settings");
  const auto wrong = [&](const char* what) {
    return Corrupt(fmt::format("{} is damaged: {} is missing or of another type", where, what));
  };
  DataDescription about;
  const auto files = json.find("files"), statistics = json.find("statistics");
  if (files == json.end() || !files->is_array()) return wrong("files");
  if (statistics == json.end() || !statistics->is_object()) return wrong("statistics");
  for (const Json& entry : *files) {
    if (!entry.is_object()) return wrong("a file");
    DataFile& file = about.files.emplace_back();
    TEMPER_ASSIGN_OR_RETURN(const int64_t format, RequireInt(entry, "format", where));
    if (format < 0 || format > static_cast<int64_t>(RecordFormat::kPair)) return wrong("the format of a file");
    file.format = static_cast<RecordFormat>(format);
    TEMPER_ASSIGN_OR_RETURN(file.format_place, StringOr(entry, "format_place", "", where));
    TEMPER_ASSIGN_OR_RETURN(file.rows, RequireInt(entry, "rows", where));
    TEMPER_ASSIGN_OR_RETURN(file.first_sample, RequireInt(entry, "first_sample", where));
    const bool first = about.files.size() == 1;
    if (first ? file.first_sample != 0 : file.first_sample < (&file - 1)->first_sample) return wrong("a first sample");
  }
  if (about.files.size() != paths.size()) return Corrupt(where + " is damaged: it has another number of files");
  for (size_t i = 0; i < paths.size(); ++i) about.files[i].path = paths[i];
  DataStatistics& s = about.statistics;
  for (const auto& [name, count] : kCounts) {
    TEMPER_ASSIGN_OR_RETURN(s.*count, RequireInt(*statistics, name, where));
  }
  for (const auto& [name, finding] : kFindings) {
    const auto found = statistics->find(name);
    if (found == statistics->end()) return wrong(name);
    TEMPER_ASSIGN_OR_RETURN(s.*finding, FindingOf(*found, name, paths, where));
  }
  for (const auto& [name, findings] : kFieldFindings) {
    const auto fields = statistics->find(name);
    if (fields == statistics->end() || !fields->is_object()) return wrong(name);
    for (const auto& [field, found] : fields->items()) {
      TEMPER_ASSIGN_OR_RETURN(const Finding finding, FindingOf(found, name, paths, where));
      (s.*findings).Add(field, finding);
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t least, RequireInt(*statistics, "least_weight", where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t largest, RequireInt(*statistics, "largest_weight", where));
  s.least_weight = static_cast<TokenWeight>(least);
  s.largest_weight = static_cast<TokenWeight>(largest);
  const auto problems = statistics->find("problems");
  if (problems == statistics->end() || !problems->is_array()) return wrong("problems");
  for (const Json& problem : *problems) {
    if (!problem.is_object()) return wrong("a problem");
    TEMPER_ASSIGN_OR_RETURN(std::string text, WithPath(problem, paths, where));
    s.problems.push_back(std::move(text));
  }
  const auto unknown = statistics->find("unknown");
  if (unknown == statistics->end() || !unknown->is_object()) return wrong("unknown");
  TEMPER_ASSIGN_OR_RETURN(s.unknown.token, StringOr(*unknown, "token", "", where));
  TEMPER_ASSIGN_OR_RETURN(s.unknown.count, RequireInt(*unknown, "count", where));
  const auto characters = unknown->find("characters");
  if (characters == unknown->end() || !characters->is_object()) return wrong("the unknown characters");
  for (const auto& [character, n] : characters->items()) {
    if (!n.is_number_integer()) return wrong("an unknown character");
    s.unknown.characters[character] = n.get<int64_t>();
  }
  return about;
}

}  // namespace temper
