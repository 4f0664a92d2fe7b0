#include "run/base_beside.h"

#include <fmt/core.h>

namespace temper {
namespace {

constexpr char kRecordFile[] = "made_for_run.json";

}  // namespace

BaseBeside::BaseBeside(Env& env, const std::string& output_dir, const char* option, std::string record)
    : env_(env), option_(option), record_(std::move(record)), folder_(output_dir) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  folder_ += "-base";
  record_path_ = JoinPath(folder_, kRecordFile);
}

Result<bool> BaseBeside::IsThere() const {
  if (env_.IsFile(record_path_)) {
    const auto before = ReadTextFile(env_, record_path_, MiB(64));
    return before.ok() && *before == record_;
  }
  if (!env_.IsFolder(folder_)) return false;
  TEMPER_ASSIGN_OR_RETURN(const auto names, env_.List(folder_));
  if (names.empty()) return false;
  return InvalidArgument(
      fmt::format("{} writes the base of this run to {}, which is there and holds something else: remove it, or choose "
                  "another output_dir",
                  option_, folder_));
}

// An unfinished folder has a record that is of nothing, so that the next start may write it.
Status BaseBeside::Begin() const {
  TEMPER_RETURN_IF_ERROR(env_.CreateFolders(folder_));
  return WriteTextFileAtomically(env_, record_path_, "{}\n");
}

Status BaseBeside::Finish() const {
  return WriteTextFileAtomically(env_, record_path_, record_);
}

}  // namespace temper
