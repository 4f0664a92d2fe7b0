#include "format/data_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/env.h"
#include "base/quantity.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kTrainSplit[] = "train";

// Those of datasets (data_files.py, KEYWORDS_IN_..._BASE_PATTERNS).
constexpr std::pair<std::string_view, std::string_view> kSplitWords[] = {
    {"training", kTrainSplit}, {"train", kTrainSplit}, {"validation", "validation"}, {"valid", "validation"},
    {"val", "validation"},     {"dev", "validation"},  {"testing", "test"},          {"test", "test"},
    {"evaluation", "test"},    {"eval", "test"},
};

// The name that a word stands for, or "".
std::string_view NamedSplit(std::string_view word) {
  for (const auto& [known, name] : kSplitWords) {
    if (word == known) return name;
  }
  return "";
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Where "-00000-of-00003" begins in a name, or npos.
size_t ShardAt(std::string_view name) {
  constexpr std::string_view kForm = "-ddddd-of-ddddd";
  for (size_t at = name.find('-'); at != name.npos; at = name.find('-', at + 1)) {
    const std::string_view part = name.substr(at, kForm.size());
    if (part.size() == kForm.size() && std::equal(part.begin(), part.end(), kForm.begin(), [](char c, char form) {
          return form == 'd' ? IsDigit(c) : c == form;
        })) {
      return at;
    }
  }
  return name.npos;
}

}  // namespace

std::string SplitOfFile(std::string_view path) {
  const std::string base = BaseName(path);
  const std::string_view name(base);
  const bool arrow = name.ends_with(".arrow");
  if (const size_t shard = ShardAt(name); shard != name.npos && shard > 0) {
    const std::string folder = BaseName(FolderOf(path));
    std::string_view split = name.substr(0, shard);
    if (arrow) split = split == "data" ? std::string_view(folder) : split.substr(split.rfind('-') + 1);
    const std::string_view known = NamedSplit(split);
    return std::string(known.empty() ? split : known);
  }
  if (arrow) {
    const std::string_view stem = name.substr(0, name.rfind('.')), word = stem.substr(stem.rfind('-') + 1);
    if (const std::string_view known = NamedSplit(word); !known.empty()) return std::string(known);
  }
  const size_t end =
      std::find_if(name.begin(), name.end(), [](char c) { return c == '.' || c == '-' || c == '_' || IsDigit(c); }) -
      name.begin();
  if (const std::string_view known = NamedSplit(name.substr(0, end)); !known.empty()) return std::string(known);
  return std::string(NamedSplit(BaseName(FolderOf(path))));
}

std::vector<std::string> FilesOfSplit(const std::vector<std::string>& files, std::string_view split) {
  const std::string_view known = NamedSplit(split), wanted = known.empty() ? split : known;
  std::vector<std::string> found;
  std::copy_if(files.begin(), files.end(), std::back_inserter(found),
               [&](const std::string& file) { return !wanted.empty() && SplitOfFile(file) == wanted; });
  return found;
}

Result<ChosenSplit> ChooseSplit(std::vector<std::string> files, const std::string& wanted, bool for_training,
                                const std::string& what) {
  std::set<std::string> splits;
  for (const std::string& file : files) splits.insert(SplitOfFile(file));
  splits.erase("");
  const std::string_view known = NamedSplit(wanted);
  std::string split = known.empty() ? wanted : std::string(known);
  if (split.empty()) {
    if (splits.size() < 2) return ChosenSplit{.files = std::move(files)};
    if (!for_training || !splits.contains(kTrainSplit)) {
      return InvalidArgument(fmt::format("{} has the splits {}: name one (--split {}, or PATH:split={} for this alone)",
                                         what, fmt::join(splits, ", "), *splits.begin(), *splits.begin()));
    }
    split = kTrainSplit;
  }
  // As the library reads them: what has no split is for training.
  if (splits.empty() && split == kTrainSplit) return ChosenSplit{.files = std::move(files)};
  if (!splits.contains(split)) {
    return NotFound(fmt::format("{} has no split {}: {}", what, Quoted(split),
                                splits.empty() ? "no name of a file in it begins with that of a split"
                                               : fmt::format("its files belong to {}", fmt::join(splits, ", "))));
  }
  ChosenSplit chosen{.split = split};
  for (std::string& file : files) {
    if (SplitOfFile(file) == split) chosen.files.push_back(std::move(file));
  }
  splits.erase(split);
  chosen.others.assign(splits.begin(), splits.end());
  return chosen;
}

}  // namespace temper
