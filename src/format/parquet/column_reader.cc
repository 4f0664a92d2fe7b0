#include "format/parquet/column_reader.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "format/parquet/thrift_reader.h"
#include "format/quoted.h"

namespace temper {
namespace {

// parquet.thrift
enum PageType : int64_t { kDataPage = 0, kDictionaryPage = 2, kDataPageV2 = 3 };
constexpr int64_t kRleLevels = 3;
constexpr int64_t kPlainValues = 0, kPlainDictionaryValues = 2;

constexpr int64_t kFirstHeader = 1 << 10;  // bytes; longer ones have statistics with long texts
constexpr int64_t kMaxHeader = 16 << 20;
constexpr int64_t kMaxPage = 1 << 30;

int BitsFor(int largest) {
  return std::bit_width(static_cast<unsigned>(largest));
}

}  // namespace

struct ColumnReader::PageHeader {
  int64_t type = -1, size = -1, packed = -1;
  std::optional<int64_t> checksum;  // CRC-32 of the packed bytes
  int64_t values = -1, encoding = -1;
  int64_t definition_encoding = kRleLevels, repetition_encoding = kRleLevels;  // of the first version
  int64_t definition_bytes = 0, repetition_bytes = 0;                          // of the second
  bool is_packed = true;
};

bool ColumnReader::Fail(const Status& status) {
  status_ =
      status.WithContext(fmt::format("{}: row group {}, column {}", file_.path(), row_group_, Quoted(leaf_.path)));
  return false;
}

bool ColumnReader::Begin(const ParquetChunk& chunk, size_t number) {
  chunk_ = chunk;
  row_group_ = number;
  at_ = chunk.begin;
  left_ = chunk.values;
  in_page_ = 0;
  dictionary_.reset();
  decoder_.reset();
  place_ = places_ = value_ = values_count_ = 0;
  return Load();
}

bool ColumnReader::Load() {
  if (place_ == places_ && !LoadLevels()) return false;
  if (ended() || definition() != leaf_.max_definition || value_ < values_count_) return true;
  values_.Clear();
  value_ = 0;
  values_count_ = decoder_->Decode(kBatch, values_);
  if (values_count_ > 0) return true;
  return Fail(
      Corrupt(fmt::format("the values of the page before byte {} are damaged or too few; copy or make the file "
                          "again",
                          at_)));
}

// None are left where the column has ended.
bool ColumnReader::LoadLevels() {
  place_ = places_ = 0;
  while (in_page_ == 0) {
    if (left_ == 0) return true;
    if (!NextPage()) return false;
  }
  const auto load = [&](HybridDecoder& runs, int largest, size_t n, std::array<uint8_t, kBatch>& levels) {
    if (largest == 0) return true;  // all are 0, and so is the array
    return runs.Decode(n, levels.data()) == n && *std::max_element(levels.begin(), levels.begin() + n) <= largest;
  };
  const size_t n = std::min(kBatch, static_cast<size_t>(in_page_));
  if (!load(repetition_runs_, leaf_.max_repetition, n, repetitions_) ||
      !load(definition_runs_, leaf_.max_definition, n, definitions_)) {
    return Fail(
        Corrupt(fmt::format("the levels of the page before byte {} are damaged; copy or make the file again", at_)));
  }
  in_page_ -= static_cast<int64_t>(n);
  places_ = n;
  return true;
}

bool ColumnReader::NextPage() {
  for (;;) {
    PageHeader header;
    if (!ReadHeader(header)) return false;
    switch (header.type) {
      case kDictionaryPage:
        if (!TakeDictionary(header)) return false;
        break;
      case kDataPage:
      case kDataPageV2:
        return TakeData(header);
      default:  // an index, or what later versions add
        at_ += header.packed;
    }
  }
}

bool ColumnReader::ReadHeader(PageHeader& header) {
  const int64_t room = chunk_.end - at_;
  for (int64_t size = std::min(room, kFirstHeader);; size = std::min({size * 8, room, kMaxHeader})) {
    if (size == 0) return Fail(Corrupt(fmt::format("its pages end with {} values missing", left_)));
    std::string text(static_cast<size_t>(size), '\0');
    if (const Status read = file_.ReadAt(at_, std::as_writable_bytes(std::span(text))); !read.ok()) return Fail(read);
    header = PageHeader();
    ThriftReader in(text);
    const auto data = [&](int id, ThriftType type) {
      switch (id) {
        case 1:
          header.values = in.Int(type);
          return;
        case 2:
          header.encoding = in.Int(type);
          return;
        case 3:
          if (header.type != kDataPage) return in.Skip(type);
          header.definition_encoding = in.Int(type);
          return;
        case 4:
          if (header.type != kDataPage) return in.Skip(type);
          header.repetition_encoding = in.Int(type);
          return;
        default:
          return in.Skip(type);
      }
    };
    const auto data_v2 = [&](int id, ThriftType type) {
      switch (id) {
        case 1:
          header.values = in.Int(type);
          return;
        case 4:
          header.encoding = in.Int(type);
          return;
        case 5:
          header.definition_bytes = in.Int(type);
          return;
        case 6:
          header.repetition_bytes = in.Int(type);
          return;
        case 7:
          header.is_packed = in.Bool(type);
          return;
        default:
          return in.Skip(type);
      }
    };
    in.Struct([&](int id, ThriftType type) {
      switch (id) {
        case 1:
          header.type = in.Int(type);
          return;
        case 2:
          header.size = in.Int(type);
          return;
        case 3:
          header.packed = in.Int(type);
          return;
        case 4:
          header.checksum = in.Int(type);
          return;
        case 5:
        case 7:
          return in.Struct(type, data);
        case 8:
          return in.Struct(type, data_v2);
        default:
          return in.Skip(type);
      }
    });
    if (in.cut_off() && size < std::min(room, kMaxHeader)) continue;
    const auto begin = static_cast<int64_t>(in.position());
    if (!in.ok() || header.packed < 0 || header.packed > room - begin || header.size < 0) {
      return Fail(
          Corrupt(fmt::format("no page begins at byte {}, or it does not end where the column does; copy or make "
                              "the file again",
                              at_)));
    }
    if (std::max(header.size, header.packed) > kMaxPage) {
      return Fail(
          Unsupported(fmt::format("the page at byte {} has {} bytes, and at most {} are read: write the file with "
                                  "smaller pages",
                                  at_, std::max(header.size, header.packed), kMaxPage)));
    }
    at_ += begin;
    bytes_read_ += begin + header.packed;
    return true;
  }
}

bool ColumnReader::ReadPage(const PageHeader& header, size_t plain, bool packed, PageBuffer& out) {
  const auto size = static_cast<size_t>(header.size), packed_size = static_cast<size_t>(header.packed);
  const auto damaged = [&] {
    return Fail(Corrupt(
        fmt::format("the page of {} bytes at byte {} is damaged; copy or make the file again", packed_size, at_)));
  };
  if (plain > std::min(size, packed_size)) return damaged();
  const bool direct = !packed || chunk_.codec == 0;
  if (direct && size != packed_size) return damaged();
  PageBuffer& read = direct ? out : packed_;
  if (!read.Resize(packed_size) || (!direct && !out.Resize(size))) {
    return Fail(
        Unsupported(fmt::format("the page at byte {} unpacks from {} to {} bytes, which with the other columns' "
                                "is more than {} times the file: write it with smaller pages",
                                at_, packed_size, size, PageBudget::kMostTimesFile)));
  }
  const Status got = packed_size == 0 ? OkStatus() : file_.ReadAt(at_, std::as_writable_bytes(read.bytes()));
  if (!got.ok()) return Fail(got);
  if (header.checksum) {
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(read.bytes().data()), static_cast<uInt>(packed_size));
    if (static_cast<uint32_t>(sum) != static_cast<uint32_t>(*header.checksum)) return damaged();
  }
  if (!direct) {
    std::copy_n(read.bytes().begin(), plain, out.bytes().begin());
    if (!codec_.Unpack(chunk_.codec, read.bytes().subspan(plain), out.bytes().subspan(plain))) return damaged();
  }
  at_ += header.packed;
  return true;
}

bool ColumnReader::TakeDictionary(const PageHeader& header) {
  if (dictionary_ || decoder_ != nullptr) return Fail(Corrupt(fmt::format("a second dictionary at byte {}", at_)));
  if (header.values < 0 || (header.encoding != kPlainValues && header.encoding != kPlainDictionaryValues)) {
    return Fail(Corrupt(fmt::format("a dictionary of {} values in encoding {}", header.values, header.encoding)));
  }
  if (!ReadPage(header, /*plain=*/0, /*packed=*/true, dictionary_page_)) return false;
  const std::string_view bytes(dictionary_page_.bytes().data(), dictionary_page_.bytes().size());
  const auto most = static_cast<size_t>(header.values);
  dictionary_.emplace();
  // A value has a bit or more in the file; a vector may have room for twice as many as it holds.
  if (most > 8 * bytes.size() || !dictionary_share_.Resize(2 * most * sizeof(std::string_view))) {
    return Fail(Corrupt(fmt::format("a dictionary of {} values in {} bytes before byte {}", most, bytes.size(), at_)));
  }
  if (most == 0) return true;
  auto decoder = ValueDecoder::Make(kPlainValues, leaf_.type, bytes, most, nullptr);
  if (!decoder.ok()) return Fail(decoder.status());
  if ((*decoder)->Decode(most, *dictionary_) < most) {
    return Fail(Corrupt(fmt::format("the dictionary before byte {} has fewer than its {} values", at_, most)));
  }
  return true;
}

bool ColumnReader::TakeData(const PageHeader& header) {
  if (header.values < 0 || header.values > left_) {
    return Fail(Corrupt(
        fmt::format("a page of {} values at byte {}, where the column has {} left", header.values, at_, left_)));
  }
  if (header.values == 0) {  // whatever else is in it
    at_ += header.packed;
    return true;
  }
  const bool second = header.type == kDataPageV2;
  if ((leaf_.max_definition > 0 && header.definition_encoding != kRleLevels) ||
      (leaf_.max_repetition > 0 && header.repetition_encoding != kRleLevels)) {
    return Fail(Unsupported("levels are in the encoding BIT_PACKED, which is not read: write the file anew"));
  }
  if (header.definition_bytes < 0 || header.repetition_bytes < 0 || header.definition_bytes > kMaxPage ||
      header.repetition_bytes > kMaxPage) {
    return Fail(Corrupt(fmt::format("the page at byte {} has levels of negative or huge size", at_)));
  }
  const auto plain = static_cast<size_t>(header.definition_bytes + header.repetition_bytes);
  decoder_.reset();
  if (!ReadPage(header, plain, header.is_packed, page_)) return false;
  std::string_view bytes(page_.bytes().data(), page_.bytes().size());
  // Of levels: in the second version sizes are in the header, in the first before the levels, if there are any.
  const auto take = [&](int largest, int64_t size, HybridDecoder& runs) {
    uint32_t stated = 0;
    if (!second) {
      if (largest == 0) return true;
      if (bytes.size() < sizeof stated) return false;
      std::memcpy(&stated, bytes.data(), sizeof stated);
      bytes.remove_prefix(sizeof stated);
    }
    const size_t length = second ? static_cast<size_t>(size) : stated;
    if (length > bytes.size()) return false;
    runs = HybridDecoder(bytes.substr(0, length), BitsFor(largest));
    bytes.remove_prefix(length);
    return true;
  };
  if (!take(leaf_.max_repetition, header.repetition_bytes, repetition_runs_) ||
      !take(leaf_.max_definition, header.definition_bytes, definition_runs_)) {
    return Fail(Corrupt(fmt::format("the page before byte {} ends within its levels", at_)));
  }
  auto decoder = ValueDecoder::Make(header.encoding, leaf_.type, bytes, static_cast<size_t>(header.values),
                                    dictionary_ ? &*dictionary_ : nullptr);
  // A page of nulls alone may have no values, not even their head.
  if (!decoder.ok() && !(bytes.empty() && leaf_.max_definition > 0)) return Fail(decoder.status());
  if (decoder.ok()) {
    decoder_ = *std::move(decoder);
  } else {
    static constexpr ParquetType kNoText{};
    decoder_ = *ValueDecoder::Make(kPlainValues, kNoText, {}, 0, nullptr);
  }
  value_ = values_count_ = 0;
  values_.Clear();
  left_ -= header.values;
  in_page_ = header.values;
  return true;
}

}  // namespace temper
