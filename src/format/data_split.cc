#include "format/data_split.h"

#include <cctype>
#include <iterator>
#include <utility>

namespace temper {
namespace {

constexpr std::pair<std::string_view, DataSplit> kWords[] = {
    {"train", DataSplit::kTrain},      {"training", DataSplit::kTrain}, {"validation", DataSplit::kValidation},
    {"valid", DataSplit::kValidation}, {"dev", DataSplit::kValidation}, {"val", DataSplit::kValidation},
    {"test", DataSplit::kTest},        {"testing", DataSplit::kTest},   {"eval", DataSplit::kTest},
    {"evaluation", DataSplit::kTest}};

}  // namespace

DataSplit SplitNamed(std::string_view name) {
  for (const auto& [word, split] : kWords) {
    if (name == word) return split;
  }
  return DataSplit::kOther;
}

DataSplit SplitOf(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 == 0
  const auto is_letter = [&](size_t i) { return std::isalpha(static_cast<unsigned char>(path[i])) != 0; };
  for (size_t from = 0; from < path.size();) {
    size_t to = from;
    while (to < path.size() && is_letter(to)) ++to;
    if (const DataSplit split = SplitNamed(path.substr(from, to - from)); split != DataSplit::kOther) return split;
    from = to + 1;
  }
  return DataSplit::kOther;
}

std::vector<std::string> FilesOfSplit(const std::vector<std::string>& files, DataSplit split) {
  std::vector<std::string> found;
  if (split == DataSplit::kOther) return found;
  for (const std::string& file : files) {
    if (SplitOf(file) == split) found.push_back(file);
  }
  return found;
}

}  // namespace temper
