#include "format/safetensors_writer.h"

#include <algorithm>
#include <utility>

#include "format/quoted.h"

namespace temper {
namespace {

int64_t AlignmentFor(WriteMode mode) {
  return mode == WriteMode::kDirect ? kDirectBlock : 8;
}

}  // namespace

std::vector<StoredTensor> LayOutTensors(std::vector<TensorDeclaration> tensors, WriteMode mode) {
  const auto key = [mode](const TensorDeclaration& d) {
    const bool blocks = mode == WriteMode::kDirect && d.bytes().v % kDirectBlock == 0;
    return std::pair(!blocks, d.as != nullptr ? -int64_t{d.as->dtype->bits} / 8 : -SizeOf(d.type.dtype));
  };
  std::stable_sort(tensors.begin(), tensors.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<StoredTensor> placed;
  placed.reserve(tensors.size());
  int64_t offset = 0;
  for (TensorDeclaration& d : tensors) {
    const Bytes bytes = d.bytes();
    StoredTensor t{.name = std::move(d.name)};
    t.dtype = d.as != nullptr ? d.as->dtype : FindStoredDType(SafetensorsName(d.type.dtype));
    if (d.as != nullptr) t.dims = d.as->dims;
    for (int i = 0; d.as == nullptr && i < d.type.shape.rank(); ++i) t.dims.push_back(d.type.shape.dim(i));
    t.begin = offset;
    t.end = offset += bytes.v;
    placed.push_back(std::move(t));
  }
  return placed;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(Env& env, const std::string& path,
                                                    std::vector<TensorDeclaration> tensors,
                                                    SafetensorsMetadata metadata, WriteMode mode) {
  SafetensorsHeader header{.tensors = LayOutTensors(std::move(tensors), mode), .metadata = std::move(metadata)};
  auto head = FormatSafetensorsHeader(header, AlignmentFor(mode));
  if (!head.ok()) return head.status().WithContext(path);
  SafetensorsWriter writer(env, path, std::move(header.tensors), std::move(*head));
  TEMPER_ASSIGN_OR_RETURN(writer.file_, env.OpenForWrite(path + ".tmp", mode));
  TEMPER_RETURN_IF_ERROR(writer.file_->Append(writer.head_));
  return writer;
}

Result<Bytes> SafetensorsWriter::FileSize(std::vector<TensorDeclaration> tensors, SafetensorsMetadata metadata,
                                          WriteMode mode) {
  const SafetensorsHeader header{.tensors = LayOutTensors(std::move(tensors), mode), .metadata = std::move(metadata)};
  TEMPER_ASSIGN_OR_RETURN(const std::string head, FormatSafetensorsHeader(header, AlignmentFor(mode)));
  return Bytes{std::ssize(head) + (header.tensors.empty() ? 0 : header.tensors.back().end)};
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  (void)env_->RemoveFile(path_ + ".tmp");  // best effort: it is a temporary either way
}

void SafetensorsWriter::KeepChecksum() {
  TEMPER_CHECK(current_ == 0 && filled_ == 0) << path_ << " has data already";
  checksum_.emplace();
  checksum_->Update(std::as_bytes(std::span(head_)));
}

Status SafetensorsWriter::Keep(Status status) {
  if (!status.ok()) error_ = status;
  return status;
}

Status SafetensorsWriter::Append(std::string_view name, std::span<const std::byte> bytes) {
  if (!error_.ok() || bytes.empty()) return error_;
  while (current_ < order_.size() && filled_ == order_[current_].bytes().v) {
    ++current_;
    filled_ = 0;
  }
  TEMPER_CHECK(file_ && current_ < order_.size()) << path_ << " is complete, yet bytes of " << name << " come";
  const StoredTensor& t = order_[current_];
  TEMPER_CHECK(t.name == name) << path_ << ": bytes of " << name << " come in " << t.name << "'s turn";
  TEMPER_CHECK(static_cast<int64_t>(bytes.size()) <= t.bytes().v - filled_)
      << path_ << ": " << name << " is " << t.ToString() << " but gets " << filled_ + bytes.size() << " bytes";
  filled_ += static_cast<int64_t>(bytes.size());
  if (checksum_) checksum_->Update(bytes);
  return Keep(file_->Append(bytes));
}

Status SafetensorsWriter::Finish() {
  if (!error_.ok()) return error_;
  TEMPER_CHECK(file_ != nullptr) << path_ << " is finished already";
  for (size_t i = current_; i < order_.size(); ++i) {
    TEMPER_CHECK(order_[i].bytes().v == (i == current_ ? filled_ : 0))
        << path_ << ": " << order_[i].name << " lacks bytes";
  }
  TEMPER_RETURN_IF_ERROR(Keep(file_->Sync()));
  TEMPER_RETURN_IF_ERROR(Keep(file_->Close()));
  TEMPER_RETURN_IF_ERROR(Keep(env_->Rename(path_ + ".tmp", path_)));
  file_.reset();
  return Keep(env_->SyncFolder(FolderOf(path_)));
}

}  // namespace temper
