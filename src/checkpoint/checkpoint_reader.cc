#include "checkpoint/checkpoint_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "checkpoint/companion_files.h"
#include "format/checksum.h"
#include "format/quoted.h"

namespace temper {
namespace {

Status SizeDiffers(const std::string& path, Bytes found, Bytes expected) {
  return Corrupt(fmt::format("{} has {} bytes, its manifest says {}: it is {}", path, found.v, expected.v,
                             found < expected ? "truncated" : "another file"));
}

Result<std::string> HeaderChecksum(Env& env, const SafetensorsFile& file) {
  TEMPER_ASSIGN_OR_RETURN(const auto raw, env.OpenForRead(file.path()));
  std::vector<std::byte> head(static_cast<size_t>(file.data_begin()));
  TEMPER_RETURN_IF_ERROR(raw->ReadAt(0, head));
  return ChecksumHex(head);
}

}  // namespace

Result<CheckpointReader> CheckpointReader::Open(Env& env, const std::string& folder) {
  if (!env.IsFolder(folder)) return NotFound(folder + ": there is no such folder");
  TEMPER_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(env, folder));
  CheckpointReader reader(env, folder, std::move(manifest));
  TEMPER_RETURN_IF_ERROR(reader.CheckFiles());
  TEMPER_RETURN_IF_ERROR(reader.CheckTensors());
  return reader;
}

Status CheckpointReader::CheckFiles() {
  for (const Manifest::File& f : manifest_.files) {
    const std::string path = JoinPath(path_, f.name);
    if (!env_->IsFile(path)) return NotFound(fmt::format("{} lacks {}, which its manifest lists", path_, f.name));
    if (!f.header_only) {
      TEMPER_ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(*env_, path));
      if (digest.bytes != f.bytes) return SizeDiffers(path, digest.bytes, f.bytes);
      if (digest.checksum != f.checksum) return ChecksumDiffers(path, digest.checksum, f.checksum);
      continue;
    }
    {
      TEMPER_ASSIGN_OR_RETURN(const auto raw, env_->OpenForRead(path));
      if (raw->size() != f.bytes) return SizeDiffers(path, raw->size(), f.bytes);
    }
    TEMPER_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(*env_, path));
    TEMPER_ASSIGN_OR_RETURN(const std::string checksum, HeaderChecksum(*env_, file));
    if (checksum != f.checksum) return ChecksumDiffers(path + "'s header", checksum, f.checksum);
    files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  }
  return OkStatus();
}

// Both ways: what the manifest lists is stored so, and nothing else is stored.
Status CheckpointReader::CheckTensors() {
  std::set<std::pair<const SafetensorsFile*, std::string_view>> listed;
  for (const Manifest::Tensor& t : manifest_.tensors) {
    for (const Manifest::Slice& slice : t.slices) {
      const SafetensorsFile& file = FileOf(slice.file);
      const StoredTensor* stored = file.Find(slice.stored_as);
      if (!stored) return Corrupt(fmt::format("{} lacks tensor {}", file.path(), Quoted(slice.stored_as)));
      TEMPER_ASSIGN_OR_RETURN(const TensorType type, stored->type());
      if (type != TensorType{t.type.dtype, slice.shape}) {
        return Corrupt(fmt::format("{}: tensor {} is {}, its manifest says {}", file.path(), Quoted(slice.stored_as),
                                   type.ToString(), TensorType{t.type.dtype, slice.shape}.ToString()));
      }
      if (!listed.emplace(&file, slice.stored_as).second) {
        return Corrupt(fmt::format("{}: two tensors of the manifest are stored as {}", path_, Quoted(slice.stored_as)));
      }
    }
  }
  for (const auto& file : files_) {
    for (const StoredTensor& stored : file->tensors()) {
      if (listed.contains({file.get(), stored.name})) continue;
      return Corrupt(
          fmt::format("{} has tensor {}, which its manifest does not list", file->path(), Quoted(stored.name)));
    }
  }
  return OkStatus();
}

const SafetensorsFile& CheckpointReader::FileOf(const std::string& name) const {
  const std::string path = JoinPath(path_, name);
  const auto it = std::find_if(files_.begin(), files_.end(), [&](const auto& f) { return f->path() == path; });
  TEMPER_CHECK(it != files_.end()) << path << " passed the manifest's check";
  return **it;
}

std::vector<std::string> CheckpointReader::Names() const {
  std::vector<std::string> names;
  for (const Manifest::Tensor& t : manifest_.tensors) names.push_back(t.name);
  return names;
}

Result<const Manifest::Tensor*> CheckpointReader::TensorOf(const std::string& name, const TensorType& wanted) const {
  const Manifest::Tensor* t = manifest_.Find(name);
  if (!t) return NotFound(fmt::format("{} has no tensor {}", path_, Quoted(name)));
  if (t->type == wanted) return t;
  return InvalidArgument(
      fmt::format("{}: tensor {} is {} but {} is needed: the checkpoint is of another model or "
                  "configuration",
                  path_, Quoted(name), t->type.ToString(), wanted.ToString()));
}

Status CheckpointReader::LoadTensor(const std::string& name, const PartView& part) const {
  TEMPER_ASSIGN_OR_RETURN(const Manifest::Tensor* const t, TensorOf(name, {part.view.type.dtype, part.global}));
  return LoadSlices(*t, Files(), part);
}

Status CheckpointReader::LoadTensor(const std::string& name, const TensorType& whole, const Box& part,
                                    const PutBytes& put) const {
  TEMPER_ASSIGN_OR_RETURN(const Manifest::Tensor* const t, TensorOf(name, whole));
  return LoadSlices(*t, Files(), part, put);
}

Status CheckpointReader::VerifyTensor(const std::string& name) const {
  const Manifest::Tensor* t = manifest_.Find(name);
  if (!t) return NotFound(fmt::format("{} has no tensor {}", path_, Quoted(name)));
  return VerifySlices(*t, Files());
}

Result<std::string> CheckpointReader::ReadText(const std::string& file) const {
  const auto it = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                               [&](const Manifest::File& f) { return f.name == file && !f.header_only; });
  if (it == manifest_.files.end()) return NotFound(fmt::format("{} has no {}", path_, file));
  const std::string path = JoinPath(path_, file);
  TEMPER_ASSIGN_OR_RETURN(std::string text, ReadTextFile(*env_, path));
  const std::string checksum = ChecksumHex(std::as_bytes(std::span(text)));
  if (checksum != it->checksum) return ChecksumDiffers(path, checksum, it->checksum);
  return text;
}

}  // namespace temper
