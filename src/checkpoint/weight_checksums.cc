#include "checkpoint/weight_checksums.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "checkpoint/companion_files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/slices.h"
#include "checkpoint/training_state.h"
#include "format/quoted.h"
#include "format/safetensors.h"

namespace temper {
namespace {

constexpr Bytes kMostText = MiB(4);
// A line as `xxhsum -H3` writes it: "XXH3 (model.safetensors) = b35553007c0916ba".
constexpr std::string_view kBefore = "XXH3 (", kBetween = ") = ";
constexpr size_t kDigits = 16;

Result<std::vector<FileChecksum>> ReadChecksums(Env& env, const std::string& folder) {
  const std::string path = JoinPath(folder, kChecksumsFile);
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMostText));
  std::vector<FileChecksum> files;
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++line_number;
    const size_t between = line.size() - std::min(line.size(), kBetween.size() + kDigits);
    const bool whole =
        line.starts_with(kBefore) && between > kBefore.size() && line.substr(between, kBetween.size()) == kBetween;
    const std::string_view name = whole ? line.substr(kBefore.size(), between - kBefore.size()) : "";
    if (name.empty() || name[0] == '.' || name.find('/') != name.npos) {
      return Corrupt(fmt::format(
          "{} line {}: should be \"XXH3 (FILE) = 16 digits\", of a file beside it, but is {}; delete {} to go "
          "without checksums",
          path, line_number, Quoted(line), kChecksumsFile));
    }
    files.push_back({std::string(name), std::string(line.substr(between + kBetween.size()))});
  }
  return files;
}

// Of the values alone: the states of the optimizer may have been deleted, and are not used.
Status VerifyCheckpoint(Env& env, const std::string& folder, const TransferCallback& progress, int part, int parts) {
  TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(env, folder));
  std::vector<const Manifest::Tensor*> own;
  Bytes total, done;
  int number = 0;
  for (const Manifest::Tensor& t : manifest.tensors) {
    if (!IsValueName(t.name) || number++ % parts != part) continue;
    own.push_back(&t);
    total += t.type.bytes();
  }
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
  const auto file_of = [&](const std::string& name) -> const SafetensorsFile& { return *files.at(name); };
  for (const Manifest::Tensor* const t : own) {
    for (const Manifest::Slice& slice : t->slices) {
      std::unique_ptr<SafetensorsFile>& file = files[slice.file];
      if (!file) {
        TEMPER_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(env, JoinPath(folder, slice.file)));
        file = std::make_unique<SafetensorsFile>(std::move(opened));
      }
      TEMPER_ASSIGN_OR_RETURN(const StoredTensor* const stored, file->Require(slice.stored_as));
      TEMPER_ASSIGN_OR_RETURN(const TensorType type, stored->type());
      if (type == TensorType{t->type.dtype, slice.shape}) continue;
      return Corrupt(fmt::format("{}: tensor {} is {}, its manifest says {}", file->path(), Quoted(slice.stored_as),
                                 type.ToString(), TensorType{t->type.dtype, slice.shape}.ToString()));
    }
    TEMPER_RETURN_IF_ERROR(VerifySlices(*t, file_of));
    done += t->type.bytes();
    if (progress) progress(done, total);
  }
  return OkStatus();
}

}  // namespace

Status WriteChecksums(Env& env, const std::string& folder, const std::vector<FileChecksum>& files) {
  std::string text;
  for (const auto& [name, checksum] : files) text += fmt::format("{}{}{}{}\n", kBefore, name, kBetween, checksum);
  return WriteTextFileAtomically(env, JoinPath(folder, kChecksumsFile), text);
}

Status VerifyWeights(Env& env, const std::string& folder, const TransferCallback& progress, int part, int parts) {
  if (env.IsFile(JoinPath(folder, kManifestFile))) return VerifyCheckpoint(env, folder, progress, part, parts);
  if (!env.IsFile(JoinPath(folder, kChecksumsFile))) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const auto files, ReadChecksums(env, folder));
  Bytes total, done;
  std::vector<const FileChecksum*> own;
  for (size_t i = static_cast<size_t>(part); i < files.size(); i += static_cast<size_t>(parts)) {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(JoinPath(folder, files[i].name)));
    own.push_back(&files[i]);
    total += file->size();
  }
  for (const FileChecksum* const file : own) {
    const std::string path = JoinPath(folder, file->name);
    TEMPER_ASSIGN_OR_RETURN(const FileDigest found, DigestFile(env, path, [&](Bytes read) {
                              done += read;
                              if (progress) progress(done, total);
                            }));
    if (found.checksum == file->checksum) continue;
    return Corrupt(
        fmt::format("{} is damaged, or was replaced: its checksum is {}, {} says {}. Copy it again; if another "
                    "program wrote it, delete {}",
                    path, found.checksum, kChecksumsFile, file->checksum, JoinPath(folder, kChecksumsFile)));
  }
  return OkStatus();
}

}  // namespace temper
