#include "format/data_file_pattern.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/quantity.h"
#include "format/data_file_name.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kEndingsOfData[] =
    ".jsonl, .ndjson, .json, .csv, .tsv, .parquet, .arrow, .txt, .text or .md, also with .gz, .zst or .zstd behind "
    "them";

// What a folder holds beside its data.
bool DescribesData(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find('.'));
  for (const std::string_view known :
       {"README", "readme", "Readme", "LICENSE", "dataset_info", "dataset_infos", "dataset_dict", "state"}) {
    if (stem == known) return true;
  }
  return false;
}

bool IsDataFile(const std::string& name) {
  const DataFileKind kind = KindOfDataFile(name);
  return !name.starts_with('.') && (HasRows(kind) || kind == DataFileKind::kText) && !DescribesData(name);
}

// "folder" and "name" -> "folder/name", of a path as a user writes it.
std::string Below(const std::string& folder, const std::string& name) {
  return folder.empty() || folder.ends_with('/') ? folder + name : folder + "/" + name;
}

// What a search has found and seen.
struct Search {
  std::vector<std::string> files;
  size_t others = 0;  // files that match, but are no data files
};

void Add(Env& env, const std::string& path, const std::string& name, Search& search) {
  if (!env.IsFile(path)) return;
  if (IsDataFile(name)) {
    search.files.push_back(path);
    return;
  }
  ++search.others;
}

// "**": any number of folders, also none. A link may lead back to a folder above.
constexpr std::string_view kAnyFolders = "**";
constexpr int kMostFolders = 32;

// Adds what `pattern` matches below `folder`, which ends in '/' or is empty. `depth`: folders that "**" has led into.
void Match(Env& env, const std::string& folder, std::string_view pattern, Search& search, int depth = 0) {
  const size_t slash = pattern.find('/');
  const std::string part(pattern.substr(0, slash));
  const bool last = slash == pattern.npos;
  if (part == kAnyFolders && depth < kMostFolders) {
    Match(env, folder, last ? "*" : pattern.substr(slash + 1), search, depth);
    const auto names = env.List(folder.empty() ? "." : folder);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (name.starts_with('.') || !env.IsFolder(folder + name)) continue;
      Match(env, folder + name + "/", pattern, search, depth + 1);
    }
    return;
  }
  if (!IsPattern(part)) {
    const std::string path = folder + part;
    if (last) return Add(env, path, part, search);
    return Match(env, path + "/", pattern.substr(slash + 1), search, depth);
  }
  const auto names = env.List(folder.empty() ? "." : folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    if (last) {
      Add(env, folder + name, name, search);
    } else if (env.IsFolder(folder + name)) {
      Match(env, folder + name + "/", pattern.substr(slash + 1), search, depth);
    }
  }
}

std::string Others(const Search& search) {
  if (search.others == 0) return "";
  return fmt::format("; {} {} there", Counted(static_cast<int64_t>(search.others), "other file"),
                     search.others == 1 ? "is" : "are");
}

}  // namespace

bool IsPattern(std::string_view path) {
  return path.find_first_of("*?[") != path.npos;
}

Result<std::vector<std::string>> DataFilesOf(Env& env, const std::string& given, const char* option) {
  Search search;
  if (env.IsFile(given)) return std::vector{given};
  if (env.IsFolder(given)) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(given));
    // As save_to_disk of the library datasets writes it: a folder for each split, of which this file has the names.
    const bool dictionary = env.IsFile(Below(given, "dataset_dict.json"));
    for (const std::string& name : names) {
      Add(env, Below(given, name), name, search);
      if (!dictionary || !env.IsFolder(Below(given, name))) continue;
      TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> inner, env.List(Below(given, name)));
      for (const std::string& file : inner) Add(env, Below(Below(given, name), file), file, search);
    }
    if (!search.files.empty()) return search.files;
    return NotFound(
        fmt::format("--{} {}: the folder has no data file, whose name ends in {}{} (files in its folders do "
                    "not count)",
                    option, given, kEndingsOfData, Others(search)));
  }
  if (!IsPattern(given)) return std::vector{given};
  Match(env, given.starts_with('/') ? "/" : "", std::string_view(given).substr(given.starts_with('/') ? 1 : 0), search);
  if (given.find(kAnyFolders) != given.npos) {  // several ways may lead to a file
    std::sort(search.files.begin(), search.files.end());
    search.files.erase(std::unique(search.files.begin(), search.files.end()), search.files.end());
  }
  if (!search.files.empty()) return search.files;
  const std::string folder = given.substr(0, given.rfind('/', given.find_first_of("*?[")) + 1);
  const bool exists = folder.empty() || env.IsFolder(folder);
  return NotFound(fmt::format("--{} {}: {}{}", option, ShellWord(given),
                              exists
                                  ? fmt::format("no data file matches; looked in {} for names that match and end in {}",
                                                folder.empty() ? "the working folder" : folder, kEndingsOfData)
                                  : fmt::format("there is no folder {}", folder),
                              Others(search)));
}

}  // namespace temper
