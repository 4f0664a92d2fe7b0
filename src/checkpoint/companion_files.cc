#include "checkpoint/companion_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "checkpoint/generation_config.h"
#include "format/checksum.h"

namespace temper {
namespace {

// A piece of a copy: stays in a core's L2 cache between its checksum and its write.
constexpr int64_t kCopyPiece = 256 << 10;

Result<FileDigest> ForEachPiece(Env& env, const std::string& path,
                                const std::function<Status(std::span<const std::byte>)>& take) {
  TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(path));
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kCopyPiece, file->size().v)));
  Checksum checksum;
  for (int64_t done = 0; done < file->size().v;) {
    const std::span<std::byte> part = std::span(piece).first(std::min<size_t>(piece.size(), file->size().v - done));
    TEMPER_RETURN_IF_ERROR(file->ReadAt(done, part));
    checksum.Update(part);
    TEMPER_RETURN_IF_ERROR(take(part));
    done += static_cast<int64_t>(part.size());
  }
  return FileDigest{file->size(), checksum.Hex()};
}

}  // namespace

bool IsCompanionFile(std::string_view name) {
  static constexpr std::array<std::string_view, 16> kNames = {kModelConfigFile,
                                                              kGenerationConfigFile,
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "chat_template.json",
                                                              "vocab.json",
                                                              "merges.txt",
                                                              "preprocessor_config.json",
                                                              "processor_config.json",
                                                              "video_preprocessor_config.json",
                                                              "tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "tokenizer.model",
                                                              "tiktoken.model",
                                                              "qwen.tiktoken",
                                                              "spiece.model"};
  if (const size_t slash = name.find('/'); slash != name.npos) {
    const std::string_view file = name.substr(slash + 1);
    const bool plain = !file.starts_with('.') && file.find_first_of(std::string_view("/\\\0", 3)) == file.npos;
    return name.substr(0, slash) == kCompanionFolder && plain && file.ends_with(".jinja");
  }
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.ends_with(".jinja");
}

bool IsInCompanionFolder(std::string_view name) {
  return name.find('/') != name.npos && IsCompanionFile(name);
}

bool IsTokenizerFile(std::string_view name) {
  return IsCompanionFile(name) && name != kModelConfigFile && name != kGenerationConfigFile &&
         name != "processor_config.json";
}

Result<std::vector<std::string>> CompanionFiles(Env& env, const std::string& model_folder) {
  if (!env.IsFile(JoinPath(model_folder, kModelConfigFile))) {
    return NotFound(fmt::format("{} has no {}: it is not a model folder", model_folder, kModelConfigFile));
  }
  return CompanionFilesIn(env, model_folder);
}

Result<std::vector<std::string>> CompanionFilesIn(Env& env, const std::string& folder) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> names, env.List(folder));
  if (const std::string more = JoinPath(folder, kCompanionFolder); env.IsFolder(more)) {
    TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> inside, env.List(more));
    for (const std::string& name : inside) names.push_back(JoinPath(kCompanionFolder, name));
  }
  std::erase_if(names, [&](const std::string& n) { return !IsCompanionFile(n) || !env.IsFile(JoinPath(folder, n)); });
  std::sort(names.begin(), names.end());
  return names;
}

Status CreateFolderFor(Env& env, const std::string& folder, const std::string& name) {
  if (name.find('/') == std::string::npos) return OkStatus();
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(FolderOf(JoinPath(folder, name))));
  return env.SyncFolder(folder);
}

Result<FileDigest> CopyFileDurably(Env& env, const std::string& from, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const auto out, env.OpenForWrite(to));
  TEMPER_ASSIGN_OR_RETURN(const FileDigest digest,
                          ForEachPiece(env, from, [&](std::span<const std::byte> p) { return out->Append(p); }));
  TEMPER_RETURN_IF_ERROR(out->Sync());
  TEMPER_RETURN_IF_ERROR(out->Close());
  return digest;
}

Result<FileDigest> DigestFile(Env& env, const std::string& path, const std::function<void(Bytes)>& read) {
  return ForEachPiece(env, path, [&](std::span<const std::byte> piece) {
    if (read) read({std::ssize(piece)});
    return OkStatus();
  });
}

}  // namespace temper
