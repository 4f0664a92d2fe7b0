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
constexpr std::string_view kHash = "XXH3_", kGap = "  ";
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
    constexpr size_t kName = kHash.size() + kDigits + kGap.size();
    const bool plain = line.size() > kName && line[kName] != '.' && line.find('/') == line.npos;
    if (!plain || !line.starts_with(kHash) || line.substr(kName - kGap.size(), kGap.size()) != kGap) {
      return Corrupt(
          fmt::format("{} line {}: should be \"XXH3_<16 digits>  <file>\" but is {}; delete the file to go "
                      "without checksums",
                      path, line_number, Quoted(line)));
    }
    files.push_back({std::string(line.substr(kName)), std::string(line.substr(kHash.size(), kDigits))});
  }
  return files;
}

// Of the values alone: the states of the optimizer may have been deleted, and are not used.
Status VerifyCheckpoint(Env& env, const std::string& folder, int part, int parts) {
  TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(env, folder));
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
  const auto file_of = [&](const std::string& name) -> const SafetensorsFile& { return *files.at(name); };
  int number = 0;
  for (const Manifest::Tensor& t : manifest.tensors) {
    if (!IsValueName(t.name) || number++ % parts != part) continue;
    for (const Manifest::Slice& slice : t.slices) {
      std::unique_ptr<SafetensorsFile>& file = files[slice.file];
      if (!file) {
        TEMPER_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(env, JoinPath(folder, slice.file)));
        file = std::make_unique<SafetensorsFile>(std::move(opened));
      }
      TEMPER_ASSIGN_OR_RETURN(const StoredTensor* const stored, file->Require(slice.stored_as));
      TEMPER_ASSIGN_OR_RETURN(const TensorType type, stored->type());
      if (type == TensorType{t.type.dtype, slice.shape}) continue;
      return Corrupt(fmt::format("{}: tensor {} is {}, its manifest says {}", file->path(), Quoted(slice.stored_as),
                                 type.ToString(), TensorType{t.type.dtype, slice.shape}.ToString()));
    }
    TEMPER_RETURN_IF_ERROR(VerifySlices(t, file_of));
  }
  return OkStatus();
}

}  // namespace

Status WriteChecksums(Env& env, const std::string& folder, const std::vector<FileChecksum>& files) {
  std::string text;
  for (const auto& [name, checksum] : files) text += fmt::format("{}{}{}{}\n", kHash, checksum, kGap, name);
  return WriteTextFileAtomically(env, JoinPath(folder, kChecksumsFile), text);
}

Status VerifyWeights(Env& env, const std::string& folder, int part, int parts) {
  if (env.IsFile(JoinPath(folder, kManifestFile))) return VerifyCheckpoint(env, folder, part, parts);
  if (!env.IsFile(JoinPath(folder, kChecksumsFile))) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const auto files, ReadChecksums(env, folder));
  int number = 0;
  for (const auto& [name, checksum] : files) {
    if (number++ % parts != part) continue;
    const std::string path = JoinPath(folder, name);
    TEMPER_ASSIGN_OR_RETURN(const FileDigest found, DigestFile(env, path));
    if (found.checksum == checksum) continue;
    return Corrupt(
        fmt::format("{} is damaged, or was replaced: its checksum is {}, {} says {}. Copy it again; if another "
                    "program wrote it, delete {}",
                    path, found.checksum, kChecksumsFile, checksum, JoinPath(folder, kChecksumsFile)));
  }
  return OkStatus();
}

}  // namespace temper
