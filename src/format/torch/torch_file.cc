#include "format/torch/torch_file.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "format/quoted.h"
#include "format/torch/strided_read.h"
#include "format/torch/zip_entries.h"

namespace temper {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
// torch/serialization.py: MAGIC_NUMBER, as the ten bytes of a pickled integer.
constexpr std::string_view kSequenceMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kSequenceProtocol = 1001;

bool IsRowMajor(std::span<const int64_t> dims, std::span<const int64_t> strides) {
  int64_t expected = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] == 0) return true;
    if (dims[d] != 1 && strides[d] != expected) return false;
    expected *= dims[d];
  }
  return true;
}

// The whole of a small entry.
Result<std::string> ReadEntry(const RandomAccessFile& file, const ZipEntries& zip, const ZipEntries::Entry& entry) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t begin, zip.DataBegin(entry));
  std::string text(static_cast<size_t>(entry.size), '\0');
  TEMPER_RETURN_IF_ERROR(file.ReadAt(begin, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

bool TorchFile::IsMagic(std::span<const std::byte, kMagicBytes> head) {
  // Safetensors may begin with any bytes, the length of their header; then comes JSON.
  if (head[8] == std::byte{'{'}) return false;
  if (std::memcmp(head.data(), "PK\x03\x04", 4) == 0) return true;
  const auto protocol = static_cast<uint8_t>(head[1]);
  return head[0] == std::byte{0x80} && protocol >= 2 && protocol <= 5 && head[2] == std::byte{0x8a} &&
         head[3] == std::byte{10} && std::memcmp(&head[4], kSequenceMagic.data(), 5) == 0;
}

Result<TorchFile> TorchFile::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  std::byte first{};
  TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::span(&first, 1)));
  return first == std::byte{'P'} ? OpenArchive(std::move(file)) : OpenSequence(std::move(file));
}

Result<TorchFile> TorchFile::OpenArchive(std::unique_ptr<RandomAccessFile> file) {
  const std::string& path = file->path();
  TEMPER_ASSIGN_OR_RETURN(const ZipEntries zip, ZipEntries::Read(*file));
  // All entries stand in one folder, whose name is the file's or "archive".
  const auto& entries = zip.entries();
  const auto pickle_entry = std::find_if(entries.begin(), entries.end(), [](const ZipEntries::Entry& e) {
    return e.name.find('/') == e.name.size() - kPickleName.size() && e.name.ends_with(kPickleName);
  });
  if (pickle_entry == entries.end()) {
    return Unsupported(path + " is a zip archive, but not one of torch.save: it has no data.pkl");
  }
  const std::string folder(pickle_entry->name.substr(0, pickle_entry->name.size() - kPickleName.size()));
  if (zip.Find(folder + "/constants.pkl") != nullptr) {
    return Unsupported(path + " is a TorchScript program; save the model's state dict with torch.save");
  }
  if (const auto* order = zip.Find(folder + "/byteorder"); order != nullptr && order->size == 3) {
    TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadEntry(*file, zip, *order));
    if (text == "big") return Unsupported(path + " holds big-endian numbers: save it on a little-endian machine");
  }
  if (pickle_entry->size > kMostPickle) {
    return Unsupported(fmt::format("{} has a pickle of {} bytes; up to {} are read: save the model in several files",
                                   path, pickle_entry->size, kMostPickle));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadEntry(*file, zip, *pickle_entry));
  // 0: torch.serialization.set_crc32_options(False)
  const auto* const bytes = reinterpret_cast<const Bytef*>(text.data());
  if (pickle_entry->crc != 0 && crc32(0, bytes, static_cast<uInt>(text.size())) != pickle_entry->crc) {
    return Corrupt(fmt::format("{}: {} is not what was written (its CRC differs); fetch or copy the file again", path,
                               Quoted(pickle_entry->name)));
  }
  TEMPER_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Read(text, StateDict::Globals(), path));
  TEMPER_ASSIGN_OR_RETURN(const StateDict dict, StateDict::Read(pickle, path));

  std::vector<int64_t> begins;
  for (const StateDict::Storage& storage : dict.storages) {
    const auto* entry = zip.Find(fmt::format("{}/data/{}", folder, storage.key));
    if (entry == nullptr) {
      return Corrupt(fmt::format("{}: storage {} is missing; fetch or copy the file again", path, Quoted(storage.key)));
    }
    if (entry->size / storage.element_size != storage.elements) {
      return Corrupt(fmt::format("{}: storage {} should have {} bytes but has {}; fetch or copy the file again", path,
                                 Quoted(storage.key), storage.bytes(), entry->size));
    }
    TEMPER_ASSIGN_OR_RETURN(const int64_t begin, zip.DataBegin(*entry));
    begins.push_back(begin);
  }
  return Assemble(std::move(file), dict, begins);
}

// Pickles of the magic number, the protocol, facts of the machine, the object and the storages' keys; then each
// storage, the number of its elements before it.
Result<TorchFile> TorchFile::OpenSequence(std::unique_ptr<RandomAccessFile> file) {
  const std::string& path = file->path();
  const int64_t size = file->size().v;
  // Where the pickles end shows as they are read: most are short.
  std::string head;
  int64_t at = 0;
  const auto next = [&]() -> Result<Pickle> {
    return Pickle::Read(std::string_view(head).substr(static_cast<size_t>(at)), StateDict::Globals(), path);
  };
  constexpr int kPickles = 5;
  int64_t ends[kPickles] = {};
  for (int64_t length = 64 << 10;; length *= 4) {
    head.resize(static_cast<size_t>(std::min({size, length, kMostPickle})));
    TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head))));
    at = 0;
    Status status;
    for (int64_t& end : ends) {
      const auto pickle = next();
      status = pickle.status();
      if (!status.ok()) break;
      if (&end == ends &&
          (pickle->kind(pickle->root()) != Pickle::Kind::kText || pickle->Text(pickle->root()) != kSequenceMagic)) {
        return Unsupported(path + " is a pickle, but not one of torch.save");
      }
      at += pickle->size();
      end = at;
    }
    if (status.ok()) break;
    if (std::ssize(head) == size || std::ssize(head) == kMostPickle || status.code() != StatusCode::kCorrupt) {
      return status;
    }
  }

  at = ends[0];
  TEMPER_ASSIGN_OR_RETURN(const Pickle protocol, next());
  if (protocol.kind(protocol.root()) != Pickle::Kind::kInt || protocol.Int(protocol.root()) != kSequenceProtocol) {
    return Unsupported(fmt::format("{} is not in protocol {} of torch.save", path, kSequenceProtocol));
  }
  at = ends[1];
  TEMPER_ASSIGN_OR_RETURN(const Pickle machine, next());
  if (machine.kind(machine.root()) == Pickle::Kind::kDict) {
    const auto facts = machine.Items(machine.root());
    for (size_t i = 0; i + 1 < facts.size(); i += 2) {
      const bool is_order = machine.kind(facts[i]) == Pickle::Kind::kText && machine.Text(facts[i]) == "little_endian";
      if (is_order && machine.kind(facts[i + 1]) == Pickle::Kind::kBool && machine.Int(facts[i + 1]) == 0) {
        return Unsupported(path + " holds big-endian numbers: save it on a little-endian machine");
      }
    }
  }
  at = ends[2];
  TEMPER_ASSIGN_OR_RETURN(const Pickle object, next());
  TEMPER_ASSIGN_OR_RETURN(const StateDict dict, StateDict::Read(object, path));
  at = ends[3];
  TEMPER_ASSIGN_OR_RETURN(const Pickle keys, next());

  const auto damaged = [&](std::string_view key, const char* what) {
    return Corrupt(fmt::format("{}: storage {} {}; fetch or copy the file again", path, Quoted(key), what));
  };
  if (keys.kind(keys.root()) != Pickle::Kind::kList) return damaged("", "has no key");
  std::vector<std::pair<std::string_view, size_t>> numbers;
  for (size_t i = 0; i < dict.storages.size(); ++i) numbers.emplace_back(dict.storages[i].key, i);
  std::sort(numbers.begin(), numbers.end());
  std::vector<int64_t> begins(dict.storages.size(), -1);
  int64_t place = ends[4];
  for (const Pickle::Ref key_ref : keys.Items(keys.root())) {
    if (keys.kind(key_ref) != Pickle::Kind::kText) return damaged("", "has no key");
    const std::string_view key = keys.Text(key_ref);
    const auto found = std::lower_bound(numbers.begin(), numbers.end(), std::pair(key, size_t{0}));
    // Of a storage that no tensor of the state dict has, how large it is cannot be told: its type is not known.
    if (found == numbers.end() || found->first != key) {
      return Unsupported(fmt::format("{}: storage {} belongs to no tensor of the state dict: save the state dict alone",
                                     path, Quoted(key)));
    }
    const StateDict::Storage& storage = dict.storages[found->second];
    int64_t elements = 0;
    TEMPER_RETURN_IF_ERROR(file->ReadAt(place, std::as_writable_bytes(std::span(&elements, 1))));
    place += static_cast<int64_t>(sizeof(elements));
    if (elements != storage.elements) return damaged(key, "has another size than its tensors say");
    if (storage.bytes() > size - place) return damaged(key, "is truncated");
    begins[found->second] = place;
    place += storage.bytes();
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    if (begins[i] < 0) return damaged(dict.storages[i].key, "is missing");
  }
  return Assemble(std::move(file), dict, begins);
}

Result<TorchFile> TorchFile::Assemble(std::unique_ptr<RandomAccessFile> file, const StateDict& dict,
                                      std::span<const int64_t> begins) {
  std::vector<size_t> order(begins.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return begins[a] < begins[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const StateDict::Storage &before = dict.storages[order[i - 1]], &after = dict.storages[order[i]];
    if (before.bytes() > begins[order[i]] - begins[order[i - 1]]) {
      return Corrupt(
          fmt::format("{}: storages {} and {} overlap; torch.save never does this: get the file from its "
                      "origin",
                      file->path(), Quoted(before.key), Quoted(after.key)));
    }
  }
  std::vector<StoredTensor> tensors;
  std::vector<std::vector<int64_t>> strides;
  for (const StateDict::Tensor& t : dict.tensors) {
    StoredTensor stored{.name = std::string(t.name), .dtype = t.dtype, .dims = t.dims};
    const int64_t size = t.dtype->bits / 8;
    stored.begin = begins[t.storage] + t.offset * size;
    stored.end = stored.begin + stored.elements() * size;
    tensors.push_back(std::move(stored));
    strides.push_back(IsRowMajor(t.dims, t.strides) ? std::vector<int64_t>() : t.strides);
  }
  std::vector<size_t> by_place(tensors.size());
  std::iota(by_place.begin(), by_place.end(), 0);
  std::stable_sort(by_place.begin(), by_place.end(),
                   [&](size_t a, size_t b) { return tensors[a].begin < tensors[b].begin; });
  SafetensorsHeader header;
  std::vector<std::vector<int64_t>> sorted;
  for (const size_t i : by_place) {
    header.tensors.push_back(std::move(tensors[i]));
    sorted.push_back(std::move(strides[i]));
  }
  return TorchFile(std::move(file), std::move(header), std::move(sorted));
}

TorchFile::TorchFile(std::unique_ptr<RandomAccessFile> file, SafetensorsHeader header,
                     std::vector<std::vector<int64_t>> strides)
    : TensorFile(std::move(file), /*data_begin=*/0, std::move(header)), strides_(std::move(strides)) {}

bool TorchFile::IsInPlace(const StoredTensor& t) const {
  return strides_[IndexOf(t)].empty();
}

Status TorchFile::ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const {
  const std::vector<int64_t>& strides = strides_[IndexOf(t)];
  if (strides.empty()) return file().ReadAt(t.begin + begin, out);
  const StridedPlace place = {t.begin, t.dtype->bits / 8, t.dims, strides};
  const int64_t size = place.element_size, first = begin / size;
  const int64_t end = begin + std::ssize(out);
  if (begin % size == 0 && end % size == 0) return ReadStrided(file(), place, first, out);
  // Parts of elements at either end.
  std::vector<std::byte> whole(static_cast<size_t>((end + size - 1) / size * size - first * size));
  TEMPER_RETURN_IF_ERROR(ReadStrided(file(), place, first, whole));
  std::memcpy(out.data(), whole.data() + (begin - first * size), out.size());
  return OkStatus();
}

}  // namespace temper
