// HubCache: the Hugging Face cache of this machine, in which `hf download` and transformers keep what they fetch:
//   models--org--name/refs/<revision>              a text: the commit that a branch or tag stood for
//   models--org--name/snapshots/<commit>/<file>    links into blobs/, or files where a system has no links
//   models--org--name/blobs/<checksum>[.incomplete]
// Data sets likewise, as datasets--org--name. Temper reads it and fetches nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"

namespace temper {

enum class HubKind : uint8_t { kModel, kDataset };

// What a user wrote for a repository of the Hub: "org/name", "org/name@revision", of a data set also
// "org/name/train.jsonl" and "org/name@revision/train.jsonl".
struct HubName {
  HubKind kind = HubKind::kModel;
  std::string repository;  // "org/name", or "name" of the Hub's oldest models
  std::string revision;    // branch, tag or commit; empty: none was given, which means main
  std::string file;        // in a data set; empty: none was given

  // Absent where the text cannot be the name of a repository (huggingface_hub's rules).
  static std::optional<HubName> Parse(std::string_view text, HubKind kind);
  // What fetches it: "hf download org/name --revision v2".
  std::string DownloadCommand() const;
};

class HubCache {
 public:
  // Where HF_HUB_CACHE, else HF_HOME, else XDG_CACHE_HOME say, as in huggingface_hub; else ~/.cache/huggingface/hub.
  static HubCache OfMachine(Env& env);
  HubCache(Env& env, std::string folder) : env_(&env), folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Whether anything of it has been fetched.
  bool Has(const HubName& name) const;
  // Its snapshot folder, whole: links lead somewhere and, of a model, weights are there (`needs_weights`), all shards
  // of them. Errors, kNotFound, are one line with the command that helps.
  Result<std::string> Snapshot(const HubName& name, bool needs_weights) const;
  // The file of rows that a data set's name means: the one named, or the only .jsonl or .json that it has. Errors name
  // those there are, or how to make one of Parquet.
  Result<std::string> RowsFile(const HubName& name) const;

 private:
  std::string RepositoryFolder(const HubName& name) const;
  Status CheckWhole(const HubName& name, const std::string& snapshot, bool needs_weights) const;
  // " (its download was interrupted)" where that is so.
  std::string Interrupted(const HubName& name) const;

  Env* env_;
  std::string folder_;
};

// The file that a user gave as `option`: a path, or the name of a data set in the cache. Where there is neither, one
// line says where it was looked for.
Result<std::string> FindDataFile(Env& env, const std::string& given, const char* option);

}  // namespace temper
