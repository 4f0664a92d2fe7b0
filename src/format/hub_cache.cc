#include "format/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "format/data_file_name.h"
#include "format/data_split.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr size_t kMaxName = 96;     // of a repository, by the Hub's rules
constexpr size_t kMaxListed = 6;    // names in a message
constexpr int kMaxFolderDepth = 8;  // of a data set's folders
constexpr char kMainBranch[] = "main";

// Of "org/name" one side.
bool IsNamePart(std::string_view text) {
  const auto is_name = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !text.empty() && text.size() <= kMaxName && std::all_of(text.begin(), text.end(), is_name) &&
         !is_edge(text.front()) && !is_edge(text.back());
}

bool IsRepository(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != text.npos && !IsNamePart(text.substr(0, slash))) return false;
  return IsNamePart(slash == text.npos ? text : text.substr(slash + 1)) && text.find("--") == text.npos &&
         text.find("..") == text.npos && !text.ends_with(".git");
}

// A revision or a file: a relative path that stays where it is.
bool IsPlainPath(std::string_view text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool IsCommit(std::string_view text) {
  return text.size() == 40 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "~/x" and "$NAME/x", as huggingface_hub resolves them.
std::string Expanded(std::string path) {
  if (path == "~" || path.starts_with("~/")) path = Variable("HOME") + path.substr(1);
  std::string out;
  for (size_t i = 0; i < path.size();) {
    size_t end = i + 1;
    const bool braced = path[i] == '$' && end < path.size() && path[end] == '{';
    if (path[i] == '$') {
      end += braced;
      while (end < path.size() && (std::isalnum(static_cast<unsigned char>(path[end])) || path[end] == '_')) ++end;
    }
    const size_t begin = i + 1 + braced;
    const std::string value = end > begin ? Variable(path.substr(begin, end - begin).c_str()) : "";
    const bool closed = !braced || (end < path.size() && path[end] == '}');
    if (value.empty() || !closed) {
      out += path[i++];  // one that is not set stays as it is
      continue;
    }
    out += value;
    i = end + braced;
  }
  return out;
}

std::string Listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxListed);
  const std::string more = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "), more);
}

// Relative paths of all files below `folder`, sorted.
void AddFiles(Env& env, const std::string& folder, const std::string& prefix, int depth,
              std::vector<std::string>* files) {
  const auto names = env.List(folder);
  if (!names.ok() || depth > kMaxFolderDepth) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    if (env.IsFolder(path)) {
      AddFiles(env, path, prefix + name + "/", depth + 1, files);
    } else {
      files->push_back(prefix + name);
    }
  }
}

bool HoldsRows(const std::string& file) {
  const std::string name = BaseName(file);
  // What the Hub's own tools write beside the rows.
  for (const char* about : {"dataset_infos.json", "dataset_info.json", "state.json", "dataset_dict.json"}) {
    if (name == about) return false;
  }
  return HasRows(KindOfDataFile(name));
}

}  // namespace

std::optional<HubName> HubName::Parse(std::string_view text, HubKind kind) {
  HubName name{.kind = kind};
  size_t end = text.size();  // of "org/name@revision"
  if (kind == HubKind::kDataset) {
    const size_t slash = text.find('/');
    const size_t second = slash == text.npos ? slash : text.find('/', slash + 1);
    if (second != text.npos) {
      end = second;
      name.file = text.substr(second + 1);
      if (!IsPlainPath(name.file)) return std::nullopt;
    }
  }
  const std::string_view repository = text.substr(0, end);
  const size_t at = repository.find('@');
  name.repository = repository.substr(0, at);
  if (at != repository.npos) {
    name.revision = repository.substr(at + 1);
    if (!IsPlainPath(name.revision)) return std::nullopt;
  }
  if (name.repository.empty() || !IsRepository(name.repository)) return std::nullopt;
  return name;
}

std::string HubName::DownloadCommand() const {
  std::string command = "hf download " + ShellWord(repository);
  if (!file.empty()) command += " " + ShellWord(file);
  if (kind == HubKind::kDataset) command += " --repo-type dataset";
  if (!revision.empty()) command += " --revision " + ShellWord(revision);
  return command;
}

HubCache HubCache::OfMachine(Env& env) {
  std::string cache = Variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = Variable("HOME") + "/.cache";
  std::string home = Variable("HF_HOME");
  if (home.empty()) home = JoinPath(cache, "huggingface");
  std::string folder = JoinPath(home, "hub");
  for (const char* name : {"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"}) {  // the older one first
    if (const std::string given = Variable(name); !given.empty()) folder = given;
  }
  return {env, Expanded(folder)};
}

std::string HubCache::RepositoryFolder(const HubName& name) const {
  std::string folder = name.kind == HubKind::kModel ? "models--" : "datasets--";
  for (const char c : name.repository) folder += c == '/' ? std::string("--") : std::string(1, c);
  return JoinPath(folder_, folder);
}

bool HubCache::Has(const HubName& name) const {
  return env_->IsFolder(RepositoryFolder(name));
}

std::string HubCache::Interrupted(const HubName& name) const {
  const auto blobs = env_->List(JoinPath(RepositoryFolder(name), "blobs"));
  const bool any =
      blobs.ok() && std::any_of(blobs->begin(), blobs->end(), [](const auto& b) { return b.ends_with(".incomplete"); });
  return any ? " (a download was interrupted)" : "";
}

Result<std::string> HubCache::Snapshot(const HubName& name, bool needs_weights) const {
  const std::string folder = RepositoryFolder(name);
  const std::string revision = name.revision.empty() ? kMainBranch : name.revision;
  std::string commit = revision;
  if (!IsCommit(revision)) {
    const std::string ref = JoinPath(JoinPath(folder, "refs"), revision);
    if (!env_->IsFile(ref)) {
      std::vector<std::string> refs;
      AddFiles(*env_, JoinPath(folder, "refs"), "", 0, &refs);
      const std::string known = refs.empty() ? "" : fmt::format(" (it has {})", Listed(refs));
      return NotFound(fmt::format("{} has no revision {}{}{}: fetch it with `{}`", folder, Quoted(revision), known,
                                  Interrupted(name), name.DownloadCommand()));
    }
    TEMPER_ASSIGN_OR_RETURN(commit, ReadTextFile(*env_, ref, Bytes{4096}));
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
    if (!IsCommit(commit)) {
      return Corrupt(fmt::format("{} should hold a commit but holds {}: fetch the model again with `{}`", ref,
                                 Quoted(commit), name.DownloadCommand()));
    }
  }
  std::string snapshot = JoinPath(JoinPath(folder, "snapshots"), commit);
  if (!env_->IsFolder(snapshot)) {
    return NotFound(
        fmt::format("{} is missing{}: fetch it with `{}`", snapshot, Interrupted(name), name.DownloadCommand()));
  }
  TEMPER_RETURN_IF_ERROR(CheckWhole(name, snapshot, needs_weights));
  return snapshot;
}

Status HubCache::CheckWhole(const HubName& name, const std::string& snapshot, bool needs_weights) const {
  const auto incomplete = [&](const std::string& what) {
    return NotFound(fmt::format("{} {}{}: finish the download with `{}`", snapshot, what, Interrupted(name),
                                name.DownloadCommand()));
  };
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_->List(snapshot));
  for (const std::string& file : names) {
    if (!needs_weights && file.ends_with(".safetensors")) continue;
    const std::string path = JoinPath(snapshot, file);
    if (!env_->IsFile(path) && !env_->IsFolder(path)) {
      return incomplete(fmt::format("is incomplete: {} is a link to nothing", file));
    }
  }
  if (name.kind == HubKind::kDataset) return OkStatus();
  const auto has = [&](const char* file) { return std::count(names.begin(), names.end(), file) > 0; };
  if (!has("config.json") && !has("adapter_config.json")) {
    return incomplete("has no config.json: the model is not there, or not all of it");
  }
  if (!needs_weights || has("model.safetensors") || has("adapter_model.safetensors")) return OkStatus();
  const char* index_file = "model.safetensors.index.json";
  if (!has(index_file)) {
    if (has("pytorch_model.bin") || has("adapter_model.bin")) return OkStatus();
    index_file = "pytorch_model.bin.index.json";
  }
  if (!has(index_file)) {
    // Other names are for the reader of weights to explain.
    for (const std::string& file : names) {
      for (const char* end : {".bin", ".pt", ".pth", ".safetensors"}) {
        if (file.ends_with(end)) return OkStatus();
      }
    }
    return incomplete("has no weights");
  }
  TEMPER_ASSIGN_OR_RETURN(const Json index, ReadJsonFile(*env_, JoinPath(snapshot, index_file)));
  std::set<std::string> missing;
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& [tensor, file] : index["weight_map"].items()) {
      if (file.is_string() && !has(file.get_ref<const std::string&>().c_str())) missing.insert(file);
    }
  }
  if (missing.empty()) return OkStatus();
  return incomplete("is incomplete: it lacks " + Listed({missing.begin(), missing.end()}));
}

Result<std::vector<std::string>> HubCache::RowsFiles(const HubName& name) const {
  TEMPER_ASSIGN_OR_RETURN(const std::string snapshot, Snapshot(name, /*needs_weights=*/false));
  if (!name.file.empty() && env_->IsFile(JoinPath(snapshot, name.file))) return std::vector{name.file};
  std::vector<std::string> files, rows;
  AddFiles(*env_, snapshot, "", 0, &files);
  std::copy_if(files.begin(), files.end(), std::back_inserter(rows), [&](const std::string& file) {
    return HoldsRows(file) && (name.file.empty() || file.starts_with(name.file + "/"));
  });
  // Of folders that are splits themselves, those around them.
  std::set<std::string> folders;
  for (const std::string& file : rows) {
    const std::string folder = FolderOf("/" + file);
    const bool is_split = !SplitOfFile(folder + "/rows").empty();
    folders.insert((is_split ? FolderOf(folder) : folder).substr(1));
  }
  if (folders.size() < 2 || folders.contains("")) return rows;
  const std::string shown = name.repository + (name.revision.empty() ? "" : "@" + name.revision);
  return InvalidArgument(fmt::format("the data set has rows in several folders: {}. Name one of them: {}/{}",
                                     Listed({folders.begin(), folders.end()}), shown, *folders.begin()));
}

Result<std::string> HubCache::RowsFile(const HubName& name) const {
  TEMPER_ASSIGN_OR_RETURN(const std::string snapshot, Snapshot(name, /*needs_weights=*/false));
  std::vector<std::string> files, rows;
  AddFiles(*env_, snapshot, "", 0, &files);
  std::copy_if(files.begin(), files.end(), std::back_inserter(rows), HoldsRows);
  const std::string shown = name.repository + (name.revision.empty() ? "" : "@" + name.revision);
  if (!name.file.empty()) {
    std::string path = JoinPath(snapshot, name.file);
    if (env_->IsFile(path)) return path;
    if (env_->IsFolder(path)) {
      std::erase_if(rows, [&](const std::string& file) { return !file.starts_with(name.file + "/"); });
    } else {
      return NotFound(fmt::format("{} has no file {}{}: fetch it with `{}`", snapshot, name.file,
                                  rows.empty() ? "" : " (it has " + Listed(rows) + ")", name.DownloadCommand()));
    }
  }
  if (rows.size() == 1) return JoinPath(snapshot, rows[0]);
  if (rows.size() > 1) {
    return InvalidArgument(fmt::format("the data set has several files of rows: {}. Name one of them: {}/{}",
                                       Listed(rows), shown, rows[0]));
  }
  return NotFound(fmt::format("{} has no .jsonl, .json, .csv, .tsv, .parquet or .arrow file{}: fetch it with `{}`",
                              snapshot, Interrupted(name), name.DownloadCommand()));
}

Result<std::vector<std::string>> HubFilesOf(Env& env, const std::string& given, const char* option) {
  const auto name = HubName::Parse(given, HubKind::kDataset);
  if (!name || name->repository.find('/') == std::string::npos) return std::vector{given};
  const HubCache cache = HubCache::OfMachine(env);
  if (!cache.Has(*name)) return std::vector{given};
  auto files = cache.RowsFiles(*name);
  if (!files.ok()) return files.status().WithContext(fmt::format("--{} {}", option, given));
  if (files->size() < 2) return std::vector{given};
  const std::string set = name->repository + (name->revision.empty() ? "" : "@" + name->revision);
  for (std::string& file : *files) file = set + "/" + file;
  return files;
}

Result<std::string> FindDataFile(Env& env, const std::string& given, const char* option) {
  if (env.IsFile(given) || env.IsFolder(given)) return given;
  const auto name = HubName::Parse(given, HubKind::kDataset);
  if (!name || name->repository.find('/') == std::string::npos) return given;  // to be opened, and refused as a path
  const HubCache cache = HubCache::OfMachine(env);
  if (cache.Has(*name)) {
    auto file = cache.RowsFile(*name);
    if (!file.ok()) return file.status().WithContext(fmt::format("--{} {}", option, given));
    return file;
  }
  if (name->file.empty() && KindOfDataFile(given) != DataFileKind::kOther) return given;
  return NotFound(
      fmt::format("--{} {}: there is no such file, and the Hugging Face cache ({}) has no data set {}. If it is one of "
                  "the Hub, fetch it with `{}`",
                  option, given, cache.folder(), name->repository, name->DownloadCommand()));
}

}  // namespace temper
