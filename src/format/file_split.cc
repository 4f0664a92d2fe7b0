#include "format/file_split.h"

#include <cctype>
#include <iterator>
#include <utility>

namespace temper {
namespace {

constexpr std::pair<std::string_view, FileSplit> kWords[] = {
    {"train", FileSplit::kTrain},      {"training", FileSplit::kTrain}, {"validation", FileSplit::kValidation},
    {"valid", FileSplit::kValidation}, {"dev", FileSplit::kValidation}, {"val", FileSplit::kValidation},
    {"test", FileSplit::kTest},        {"testing", FileSplit::kTest},   {"eval", FileSplit::kTest},
    {"evaluation", FileSplit::kTest}};

}  // namespace

FileSplit SplitNamed(std::string_view name) {
  for (const auto& [word, split] : kWords) {
    if (name == word) return split;
  }
  return FileSplit::kOther;
}

FileSplit SplitOf(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 == 0
  const auto is_letter = [&](size_t i) { return std::isalpha(static_cast<unsigned char>(path[i])) != 0; };
  for (size_t from = 0; from < path.size();) {
    size_t to = from;
    while (to < path.size() && is_letter(to)) ++to;
    if (const FileSplit split = SplitNamed(path.substr(from, to - from)); split != FileSplit::kOther) return split;
    from = to + 1;
  }
  return FileSplit::kOther;
}

std::vector<std::string> FilesOfSplit(const std::vector<std::string>& files, FileSplit split) {
  std::vector<std::string> found;
  if (split == FileSplit::kOther) return found;
  for (const std::string& file : files) {
    if (SplitOf(file) == split) found.push_back(file);
  }
  return found;
}

}  // namespace temper
