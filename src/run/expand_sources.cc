#include "run/expand_sources.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/quantity.h"
#include "format/data_file_pattern.h"
#include "format/file_split.h"
#include "format/quoted.h"
#include "run/output_folder.h"

namespace temper {
namespace {

std::string Listed(const std::vector<std::string>& files) {
  return files.size() == 1
             ? files[0]
             : fmt::format("{} and {}", files[0], Counted(static_cast<int64_t>(files.size()) - 1, "other file"));
}

// A folder as data sets are published: one file to train on, others to evaluate on.
void WarnOfSplits(const char* option, const std::string& folder, const std::vector<std::string>& files) {
  const std::vector<std::string> train = FilesOfSplit(files, FileSplit::kTrain);
  std::vector<std::string> held_out = FilesOfSplit(files, FileSplit::kTest);
  if (held_out.empty()) held_out = FilesOfSplit(files, FileSplit::kValidation);
  if (train.empty() || held_out.empty() || std::string_view(option) != "data") return;
  LogWarning(fmt::format("--data {}: it is trained on {}, too; if that is for evaluation give --data {} --eval_data {}",
                         ShellWord(folder), BaseName(held_out[0]), ShellWord(train[0]), ShellWord(held_out[0])));
}

bool SameFiles(const DataSources& a, const DataSources& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const DataSource& x, const DataSource& y) {
    return AbsolutePath(x.path) == AbsolutePath(y.path);
  });
}

}  // namespace

Result<DataSources> ExpandSources(Env& env, const DataSources& sources, const Expansion& how) {
  std::set<std::string> before, known;
  if (how.before != nullptr) {
    for (const DataSource& source : *how.before) before.insert(AbsolutePath(source.path));
  }
  DataSources all, kept;
  std::vector<std::string> added, left_out;
  for (const DataSource& source : sources) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> files, DataFilesOf(env, source.path, how.option));
    const bool searched = files != std::vector{source.path};
    if (searched) {
      const auto others = std::stable_partition(files.begin(), files.end(), [&](const std::string& file) {
        return how.output_dir.empty() || !OutputFolder::Writes(how.output_dir, file);
      });
      left_out.insert(left_out.end(), others, files.end());
      files.erase(others, files.end());
    }
    if (searched && env.IsFolder(source.path)) WarnOfSplits(how.option, source.path, files);
    if (files.empty()) {
      return InvalidArgument(
          fmt::format("--{} {}: all that it stands for ({}) is in output_dir ({}), among the files that a run writes "
                      "there: name the data files one by one, or choose another output_dir",
                      how.option, ShellWord(source.path), Listed(left_out), how.output_dir));
    }
    for (const std::string& file : files) {
      if (!known.insert(file).second) {
        return InvalidArgument(fmt::format("--{} {}: {} is named twice: remove one", how.option, source.path, file));
      }
      all.push_back(source);
      all.back().path = file;
      if (!searched || before.contains(AbsolutePath(file))) {
        kept.push_back(all.back());
      } else {
        added.push_back(file);
      }
    }
  }
  if (!left_out.empty()) {
    LogInfo(fmt::format("{:<12}{} left out: among the files that a run writes into output_dir", how.option,
                        Listed(left_out)));
  }
  if (how.before == nullptr || added.empty() || !SameFiles(kept, *how.before)) return all;
  LogInfo(fmt::format("{:<12}{} left out: the run began without {}", how.option, Listed(added),
                      added.size() == 1 ? "it" : "them"));
  return kept;
}

}  // namespace temper
