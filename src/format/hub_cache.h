// HubCache: the Hugging Face cache of this machine, where `hf download` and transformers keep the files they fetch:
//   models--org--name/refs/<revision>              a text: the commit that a branch or tag stood for
//   models--org--name/snapshots/<commit>/<file>    links into blobs/, or files where a system has no links
//   models--org--name/blobs/<checksum>[.incomplete]
// Data sets have the same layout, in datasets--org--name. Temper only reads the cache.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

enum class HubKind : uint8_t { kModel, kDataset };

// A repository of the Hub as users write it: "org/name", "org/name@revision", of a data set also
// "org/name/train.jsonl" and "org/name@revision/train.jsonl".
struct HubName {
  HubKind kind = HubKind::kModel;
  std::string repository;  // "org/name", or "name" of the Hub's oldest models
  std::string revision;    // branch, tag or commit; empty: not given, which means main
  std::string file;        // in a data set; empty: not given

  // nullopt if the text cannot be the name of a repository (huggingface_hub's rules).
  static std::optional<HubName> Parse(std::string_view text, HubKind kind);
  // The command that fetches it: "hf download org/name --revision v2".
  std::string DownloadCommand() const;
};

class HubCache {
 public:
  // By HF_HUB_CACHE, else HF_HOME, else XDG_CACHE_HOME, as in huggingface_hub; else ~/.cache/huggingface/hub.
  static HubCache OfMachine(Env& env);
  HubCache(Env& env, std::string folder) : env_(&env), folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Whether any file of it has been fetched.
  bool Has(const HubName& name) const;
  // Its snapshot folder, checked to be complete: no link dangles, and with `needs_weights` a model has all shards of
  // its weights. Errors (kNotFound) are one line with the command that fetches what is missing.
  Result<std::string> Snapshot(const HubName& name, bool needs_weights) const;
  // The file of rows that a data set's name stands for: the named one, or its only .jsonl, .json, .csv, .tsv, .parquet
  // or .arrow. Errors list the files that exist.
  Result<std::string> RowsFile(const HubName& name) const;
  // The files of rows of the data set, or of the folder in it that is named: paths in the data set, sorted; the named
  // file alone if it is one. Error: they are in several folders, which are not splits of one set of rows.
  Result<std::vector<std::string>> RowsFiles(const HubName& name) const;

 private:
  std::string RepositoryFolder(const HubName& name) const;
  Status CheckWhole(const HubName& name, const std::string& snapshot, bool needs_weights) const;
  // " (its download was interrupted)", or "".
  std::string Interrupted(const HubName& name) const;

  Env* env_;
  std::string folder_;
};

// The files of a data set in the cache that a user gave as `option`, if they are several: each as a name of its own
// ("org/name/data/train-00000-of-00002.parquet"). Else `given` alone, which FindDataFile finds or explains.
Result<std::vector<std::string>> HubFilesOf(Env& env, const std::string& given, const char* option);

// The file that a user gave as `option`: a path, or the name of a data set in the cache. If neither exists, the error
// says where it was looked for.
Result<std::string> FindDataFile(Env& env, const std::string& given, const char* option);

}  // namespace temper
