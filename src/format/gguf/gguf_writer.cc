#include "format/gguf/gguf_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "base/check.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kAlignment = 32;  // the format's, where general.alignment says nothing else
constexpr uint32_t kVersion = 3;
constexpr size_t kMaxTensorName = 63;  // ggml's GGML_MAX_NAME, with a zero behind

int64_t RoundUp(int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

class Text {
 public:
  template <class T>
  void Number(T x) {
    static_assert(std::is_arithmetic_v<T>);
    out_.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  void String(std::string_view text) {
    Number(static_cast<uint64_t>(text.size()));
    out_ += text;
  }
  void Value(const GgufValue& value) {
    std::visit([&](const auto& x) { One(x); }, value);
  }
  std::string Take() { return std::move(out_); }

 private:
  // Ids of types: gguf.md, enum gguf_metadata_value_type.
  template <class T>
  static constexpr uint32_t IdOf() {
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, std::string>) return 8;
  }
  template <class T>
  void Bare(const T& x) {
    if constexpr (std::is_same_v<T, std::string>) {
      String(x);
    } else if constexpr (std::is_same_v<T, bool>) {
      Number(static_cast<uint8_t>(x));
    } else {
      Number(x);
    }
  }
  template <class T>
  void One(const T& x) {
    Number(IdOf<T>());
    Bare(x);
  }
  template <class T>
  void One(const std::vector<T>& list) {
    constexpr uint32_t kArray = 9;
    Number(kArray);
    Number(IdOf<T>());
    Number(static_cast<uint64_t>(list.size()));
    for (const T& x : list) Bare(x);
  }

  std::string out_;
};

std::string HeadOf(const GgufMetadata& metadata, const std::vector<GgufDeclaration>& tensors) {
  Text text;
  text.Number('G'), text.Number('G'), text.Number('U'), text.Number('F');
  text.Number(kVersion);
  text.Number(static_cast<uint64_t>(tensors.size()));
  text.Number(static_cast<uint64_t>(metadata.pairs().size()));
  for (const auto& [key, value] : metadata.pairs()) {
    text.String(key);
    text.Value(value);
  }
  int64_t offset = 0;
  for (const GgufDeclaration& t : tensors) {
    text.String(t.name);
    text.Number(static_cast<uint32_t>(t.dims.size()));
    for (auto dim = t.dims.rbegin(); dim != t.dims.rend(); ++dim) text.Number(static_cast<uint64_t>(*dim));
    text.Number(FormatOf(t.type).id);
    text.Number(static_cast<uint64_t>(offset));
    offset += RoundUp(t.bytes().v);
  }
  std::string head = text.Take();
  head.resize(static_cast<size_t>(RoundUp(std::ssize(head))));
  return head;
}

Status CheckTensorNames(const std::vector<GgufDeclaration>& tensors, const std::string& path) {
  std::set<std::string_view> names;
  for (const GgufDeclaration& t : tensors) {
    if (t.name.size() > kMaxTensorName) {
      return InvalidArgument(fmt::format("{}: the name of tensor {} is longer than the {} bytes that llama.cpp reads",
                                         path, Quoted(t.name), kMaxTensorName));
    }
    if (!names.insert(t.name).second) {
      return InvalidArgument(fmt::format("{}: tensor {} would be written twice", path, Quoted(t.name)));
    }
  }
  return OkStatus();
}

}  // namespace

void GgufMetadata::Set(std::string key, GgufValue value) {
  const auto same = std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair.first == key; });
  if (same != pairs_.end()) {
    same->second = std::move(value);
  } else {
    pairs_.emplace_back(std::move(key), std::move(value));
  }
}

void GgufMetadata::Add(const GgufMetadata& others) {
  for (const auto& [key, value] : others.pairs_) Set(key, value);
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair.first == key; });
  return found == pairs_.end() ? nullptr : &found->second;
}

int64_t GgufDeclaration::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

Result<GgufWriter> GgufWriter::Create(Env& env, const std::string& path, const GgufMetadata& metadata,
                                      std::vector<GgufDeclaration> tensors) {
  TEMPER_RETURN_IF_ERROR(CheckTensorNames(tensors, path));
  const std::string head = HeadOf(metadata, tensors);
  GgufWriter writer(env, path, std::move(tensors));
  writer.size_ = {std::ssize(head)};
  for (const GgufDeclaration& t : writer.tensors_) {
    TEMPER_CHECK(t.dims.empty() || t.dims.back() % FormatOf(t.type).elements == 0)
        << t.name << ": rows of " << t.dims.back() << " as " << FormatOf(t.type).name;
    writer.size_ += {RoundUp(t.bytes().v)};
  }
  TEMPER_ASSIGN_OR_RETURN(writer.file_, env.OpenForWrite(path + ".tmp"));
  TEMPER_RETURN_IF_ERROR(writer.file_->Append(head));
  return writer;
}

GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;

GgufWriter::~GgufWriter() {
  if (!file_) return;
  file_.reset();
  (void)env_->RemoveFile(path_ + ".tmp");  // best effort: it is a temporary either way
}

// Behind a tensor of so many bytes.
Status GgufWriter::Pad(int64_t filled) {
  const std::byte zeros[kAlignment] = {};
  return file_->Append(std::span(zeros).first(static_cast<size_t>(RoundUp(filled) - filled)));
}

Status GgufWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return OkStatus();
  TEMPER_CHECK(file_ && current_ < tensors_.size()) << path_ << " is complete, yet bytes come";
  const GgufDeclaration& t = tensors_[current_];
  filled_ += std::ssize(bytes);
  TEMPER_CHECK(filled_ <= t.bytes().v) << path_ << ": " << t.name << " gets " << filled_ << " bytes";
  TEMPER_RETURN_IF_ERROR(file_->Append(bytes));
  if (filled_ < t.bytes().v) return OkStatus();
  ++current_;
  return Pad(std::exchange(filled_, 0));
}

Status GgufWriter::Finish() {
  TEMPER_CHECK(file_ != nullptr) << path_ << " is finished already";
  TEMPER_CHECK(current_ == tensors_.size()) << path_ << ": " << tensors_[current_].name << " lacks bytes";
  TEMPER_RETURN_IF_ERROR(file_->Sync());
  TEMPER_RETURN_IF_ERROR(file_->Close());
  TEMPER_RETURN_IF_ERROR(env_->Rename(path_ + ".tmp", path_));
  file_.reset();
  return env_->SyncFolder(FolderOf(path_));
}

}  // namespace temper
