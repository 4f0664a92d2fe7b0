#include "run/expand_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/quantity.h"
#include "format/data_file_pattern.h"
#include "format/data_split.h"
#include "format/hub_cache.h"
#include "format/quoted.h"
#include "run/output_folder.h"

namespace temper {
namespace {

std::string Listed(const std::vector<std::string>& files) {
  return files.size() == 1
             ? files[0]
             : fmt::format("{} and {}", files[0], Counted(static_cast<int64_t>(files.size()) - 1, "other file"));
}

// The files that a source stands for, of its split.
Result<std::vector<std::string>> FilesOf(Env& env, const DataSource& source, const Expansion& how) {
  const std::string& split = source.split.empty() ? how.split : source.split;
  const std::string what = fmt::format("--{} {}", how.option, ShellWord(source.path));
  TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> files, DataFilesOf(env, source.path, how.option));
  const bool folder = env.IsFolder(source.path), found = files != std::vector{source.path};
  if (!found && !env.IsFile(source.path)) {
    TEMPER_ASSIGN_OR_RETURN(files, HubFilesOf(env, source.path, how.option));
  }
  if (files == std::vector{source.path}) {
    if (source.split.empty()) return files;
    return InvalidArgument(what +
                           ": a split is of a folder, a pattern or a data set, and this is one file: remove split");
  }
  // A pattern chooses files by itself.
  if (found && !folder && split.empty()) return files;
  TEMPER_ASSIGN_OR_RETURN(ChosenSplit chosen, ChooseSplit(std::move(files), split, how.for_training, what));
  if (!chosen.others.empty()) {
    LogInfo(fmt::format("{:<12}{}: the split {} ({}); not {}", how.option, source.path, chosen.split,
                        Counted(static_cast<int64_t>(chosen.files.size()), "file"), fmt::join(chosen.others, ", ")));
  }
  return std::move(chosen.files);
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
    TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> files, FilesOf(env, source, how));
    const bool searched = files != std::vector{source.path};
    if (searched) {
      const auto others = std::stable_partition(files.begin(), files.end(), [&](const std::string& file) {
        return how.output_dir.empty() || !OutputFolder::Writes(how.output_dir, file);
      });
      left_out.insert(left_out.end(), others, files.end());
      files.erase(others, files.end());
    }
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
      all.back().split.clear();
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
