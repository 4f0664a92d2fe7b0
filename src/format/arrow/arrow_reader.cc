#include "format/arrow/arrow_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "format/parquet/value_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kArrowWindow = 64 << 10, kLeastArrowWindow = 4 << 10, kAllArrowWindows = 16 << 20;
constexpr int64_t kMaxMetadata = 32 << 20;
constexpr int64_t kMillisecondsOfDay = 86'400'000;
// Message.fbs
enum ArrowHeader : uint8_t { kSchemaHeader = 1, kDictionaryHeader = 2, kBatchHeader = 3 };
constexpr int16_t kOldestVersion = 3;  // V4: of Arrow 0.8, 2017

template <class T>
T LoadNumber(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void AddArrowNames(const ArrowNode& node, std::vector<std::string>& names) {
  for (const ArrowNode& child : node.children) {
    names.push_back(child.name);
    AddArrowNames(child, names);
  }
}

}  // namespace

// A part of the file, of which a window is in memory.
class ArrowReader::Buffer {
 public:
  // `window`: how much of it is in memory at least.
  void Set(int64_t begin, int64_t size, int64_t window) {
    begin_ = begin;
    size_ = size;
    least_ = window;
    held_ = 0;
  }
  int64_t size() const { return size_; }
  // n bytes from `at` on, valid until the next call; nullptr: they cannot be read. REQUIRES: they are within size().
  const char* Read(const RandomAccessFile& file, int64_t at, int64_t n, Status& status) {
    if (at < from_ || at + n > from_ + held_ || held_ == 0) {
      held_ = std::min(std::max(n, least_), size_ - at);
      from_ = at;
      if (static_cast<int64_t>(window_.size()) < held_) window_.resize(static_cast<size_t>(held_));
      status = file.ReadAt(begin_ + at, std::as_writable_bytes(std::span(window_).first(static_cast<size_t>(held_))));
      if (!status.ok()) {
        held_ = 0;
        return nullptr;
      }
    }
    return window_.data() + (at - from_);
  }

 private:
  int64_t begin_ = 0, size_ = 0;  // in the file
  int64_t from_ = 0, held_ = 0;   // of these
  int64_t least_ = 0;
  std::vector<char> window_;
};

struct ArrowReader::Column {
  explicit Column(const ArrowNode& of) : node(of) {}

  const ArrowNode& node;
  int64_t length = 0;
  Buffer validity, offsets, data;
  std::vector<std::unique_ptr<Column>> children;
};

struct ArrowReader::Message {
  std::string text;
  std::string_view metadata() const { return text; }
  uint8_t kind = 0;  // 0: the end
  FlatTable header;
  int64_t body = 0, body_size = 0;  // in the file
};

ArrowReader::ArrowReader(std::unique_ptr<RandomAccessFile> file, RowLimits limits)
    : file_(std::move(file)), limits_(limits) {}
ArrowReader::~ArrowReader() = default;

Result<std::unique_ptr<ArrowReader>> ArrowReader::Open(std::unique_ptr<RandomAccessFile> file, RowLimits limits) {
  std::unique_ptr<ArrowReader> reader(new ArrowReader(std::move(file), limits));
  if (const Status read = reader->ReadSchema(); !read.ok()) return read.WithContext(reader->path());
  return reader;
}

Status ArrowReader::ReadSchema() {
  const int64_t size = file_->size().v;
  constexpr auto kMagicSize = static_cast<int64_t>(kArrowMagic.size());
  std::array<char, kArrowMagic.size()> ends;
  if (size >= 2 * kMagicSize) {
    TEMPER_RETURN_IF_ERROR(file_->ReadAt(0, std::as_writable_bytes(std::span(ends))));
    if (std::string_view(ends.data(), ends.size()) == kArrowMagic) {
      at_ = 8;  // after padding
      TEMPER_RETURN_IF_ERROR(file_->ReadAt(size - kMagicSize, std::as_writable_bytes(std::span(ends))));
      if (std::string_view(ends.data(), ends.size()) != kArrowMagic) {
        return Corrupt(
            "an Arrow file ends in ARROW1, and this one does not: it was cut off, or is still being written; "
            "copy or make it again");
      }
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const Message message, NextMessage());
  if (message.kind != kSchemaHeader) return Corrupt("an Arrow file begins with its schema, and this one does not");
  FlatReader in(message.metadata());
  auto root = ReadArrowSchema(in, message.header);
  if (!in.ok()) return Corrupt("its schema is damaged; copy or make the file again");
  TEMPER_ASSIGN_OR_RETURN(root_, std::move(root));
  AddArrowNames(root_, names_);
  window_ = std::clamp(kAllArrowWindows / static_cast<int64_t>(names_.size()), kLeastArrowWindow, kArrowWindow);
  column_ = MakeColumn(root_);
  return OkStatus();
}

std::unique_ptr<ArrowReader::Column> ArrowReader::MakeColumn(const ArrowNode& node) {
  auto column = std::make_unique<Column>(node);
  for (const ArrowNode& child : node.children) column->children.push_back(MakeColumn(child));
  return column;
}

std::vector<std::string> ArrowReader::columns() const {
  std::vector<std::string> names;
  for (const ArrowNode& column : root_.children) names.push_back(column.name);
  return names;
}

Result<ArrowReader::Message> ArrowReader::NextMessage() {
  const int64_t size = file_->size().v;
  Message message;
  if (at_ == size) return message;  // a stream may end without a mark
  const auto damaged = [&] {
    return Corrupt(
        fmt::format("no message begins at byte {}, or it does not end in the file: it was cut off or damaged; "
                    "copy or make it again",
                    at_));
  };
  int64_t length = -1, begin = at_;
  // 0xffffffff and the size of the header; before 2019 only the size.
  for (int word = 0; word < 2 && length < 0; ++word, begin += 4) {
    std::array<char, 4> bytes;
    if (size - begin < 4) return damaged();
    TEMPER_RETURN_IF_ERROR(file_->ReadAt(begin, std::as_writable_bytes(std::span(bytes))));
    length = LoadNumber<int32_t>(bytes.data());
    if (length < -1 || (length == -1 && word == 1)) return damaged();
  }
  if (length == 0) return message;
  if (length > kMaxMetadata || length > size - begin) return damaged();
  message.text.resize(static_cast<size_t>(length));
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(begin, std::as_writable_bytes(std::span(message.text))));
  FlatReader in(message.text);
  const FlatTable root = in.Root();
  const auto version = in.Scalar<int16_t>(root, 0, 0);
  message.kind = in.Scalar<uint8_t>(root, 1, 0);
  const auto header = in.Table(root, 2);
  message.body = begin + length;
  message.body_size = in.Scalar<int64_t>(root, 3, 0);
  if (!in.ok() || !header || message.kind == 0 || message.body_size < 0 || message.body_size > size - message.body) {
    return damaged();
  }
  if (version < kOldestVersion) return Unsupported("it was written by a version of Arrow before 0.8: write it anew");
  message.header = *header;
  at_ = message.body + message.body_size;
  return message;
}

Status ArrowReader::BeginBatch(const Message& message) {
  ++batches_;
  FlatReader in(message.metadata());
  const int64_t rows = in.Scalar<int64_t>(message.header, 0, 0);
  const FlatVector nodes = in.Vector(message.header, 1, 16), buffers = in.Vector(message.header, 2, 16);
  if (in.Table(message.header, 3)) {
    return Unsupported("its buffers are compressed, which is not read: write it without compression, or as Parquet");
  }
  size_t node = 0, buffer = 0;
  if (in.ok() && rows >= 0) {
    column_->length = rows;
    for (const auto& child : column_->children) {
      TEMPER_RETURN_IF_ERROR(Place(*child, rows, message, in, nodes, buffers, node, buffer));
    }
  }
  if (!in.ok() || rows < 0 || node != nodes.count || buffer != buffers.count) {
    return Corrupt(fmt::format("the header of the record batch before byte {} does not suit the schema", message.body));
  }
  row_ = 0;
  rows_ = rows;
  return OkStatus();
}

Status ArrowReader::Place(Column& column, int64_t rows, const Message& message, FlatReader& in, const FlatVector& nodes,
                          const FlatVector& buffers, size_t& node, size_t& buffer) const {
  using Kind = ArrowNode::Kind;
  const ArrowNode& of = column.node;
  const auto wrong = [&] {
    return Corrupt(
        fmt::format("record batch {}, column {}: its sizes contradict each other", batches_ - 1, Quoted(of.path)));
  };
  if (node == nodes.count) return wrong();
  column.length = in.Load<int64_t>(nodes.at + 16 * node++);
  if (column.length < 0 || (rows >= 0 && column.length != rows)) return wrong();
  // `least`: bytes that it needs.
  const auto place = [&](Buffer& out, int64_t least) {
    if (buffer == buffers.count) return false;
    const int64_t offset = in.Load<int64_t>(buffers.at + 16 * buffer),
                  size = in.Load<int64_t>(buffers.at + 16 * buffer + 8);
    ++buffer;
    if (offset < 0 || size < 0 || offset > message.body_size || size > message.body_size - offset) return false;
    out.Set(message.body + offset, size, window_);
    return size >= least;
  };
  if (of.kind == Kind::kNull) return OkStatus();
  const int64_t length = column.length, bits = length / 8 + (length % 8 != 0 ? 1 : 0);
  // More than the file could hold would overflow below.
  const bool has_values = of.kind != Kind::kStruct && of.kind != Kind::kFixedList;
  if (has_values && length > 8 * message.body_size) return wrong();
  if (!place(column.validity, 0) || (column.validity.size() > 0 && column.validity.size() < bits)) return wrong();
  const bool lists = of.kind == Kind::kList || of.kind == Kind::kMap;
  if (lists || of.kind == Kind::kText) {
    if (!place(column.offsets, length == 0 ? 0 : (length + 1) * (of.wide ? 8 : 4))) return wrong();
  }
  if (of.kind == Kind::kText && !place(column.data, 0)) return wrong();
  if (of.kind == Kind::kBool && !place(column.data, bits)) return wrong();
  if (of.kind == Kind::kNumber || of.kind == Kind::kFixedBytes) {
    if (length > message.body_size / of.width || !place(column.data, length * of.width)) return wrong();
  }
  for (const auto& child : column.children) {
    TEMPER_RETURN_IF_ERROR(
        Place(*child, of.kind == Kind::kStruct ? length : -1, message, in, nodes, buffers, node, buffer));
  }
  if (of.kind == Kind::kFixedList && of.elements > 0 && length > column.children[0]->length / of.elements)
    return wrong();
  return OkStatus();
}

bool ArrowReader::Fail(const Column& column, const Status& status) {
  if (status_.ok()) {
    status_ = status.WithContext(fmt::format("{}: record batch {}, row {} of it, column {}", path(), batches_ - 1, row_,
                                             Quoted(column.node.path)));
  }
  return false;
}

Result<bool> ArrowReader::Next(JsonRow& row) {
  while (status_.ok() && row_ == rows_) {
    auto message = NextMessage();
    if (message.ok() && message->kind == 0) return false;
    status_ = message.status();
    if (message.ok() && message->kind == kBatchHeader) status_ = BeginBatch(*message);
    if (!status_.ok()) status_ = status_.WithContext(path());
  }
  TEMPER_RETURN_IF_ERROR(status_);
  RowText out(row, limits_);
  out.Append("{");
  out.AddPart();
  for (const auto& child : column_->children) {
    if (child != column_->children.front()) out.Append(", ");
    out.Append(child->node.key);
    out.AddPart();
    if (!Write(*child, row_, out)) return status_;
  }
  out.Append("}");
  out.Check();
  ++row_;
  return true;
}

bool ArrowReader::Write(Column& column, int64_t i, RowText& out) {
  using Kind = ArrowNode::Kind;
  const ArrowNode& node = column.node;
  if (!out.AddValue()) return Fail(column, Unsupported("the row has too many values: split it"));
  Status status;
  const auto read = [&](Buffer& from, int64_t at, int64_t n) {
    const char* bytes = from.Read(*file_, at, n, status);
    if (bytes == nullptr) Fail(column, status);
    return bytes;
  };
  bool valid = node.kind != Kind::kNull;
  if (column.validity.size() > 0 && valid) {
    const char* bits = read(column.validity, i / 8, 1);
    if (bits == nullptr) return false;
    valid = (*bits >> (i % 8) & 1) != 0;
  }
  if (!valid) {
    out.Append("null");
    return true;
  }
  switch (node.kind) {
    case Kind::kNull:
      return true;
    case Kind::kBool: {
      const char* bits = read(column.data, i / 8, 1);
      if (bits != nullptr) out.Append((*bits >> (i % 8) & 1) != 0 ? "true" : "false");
      return bits != nullptr;
    }
    case Kind::kNumber:
      return WriteNumber(column, i, out);
    case Kind::kFixedBytes: {
      const char* bytes = read(column.data, i * node.width, node.width);
      if (bytes == nullptr) return false;
      std::string value(bytes, static_cast<size_t>(node.width));
      if (node.type.meaning == ParquetMeaning::kDecimal) std::reverse(value.begin(), value.end());
      AppendParquetBytes(node.type, value, out.json());
      return true;
    }
    case Kind::kStruct:
      out.AddPart();
      out.Append("{");
      for (const auto& child : column.children) {
        if (child != column.children.front()) out.Append(", ");
        out.Append(child->node.key);
        out.AddPart();
        if (!Write(*child, i, out)) return false;
      }
      out.Append("}");
      return true;
    default:
      return WriteList(column, i, out);
  }
}

bool ArrowReader::WriteNumber(Column& column, int64_t i, RowText& out) {
  const ArrowNode& node = column.node;
  Status status;
  const char* bytes = column.data.Read(*file_, i * node.width, node.width, status);
  if (bytes == nullptr) return Fail(column, status);
  if (node.is_float) {
    AppendParquetNumber(node.type, node.width == 4 ? LoadNumber<float>(bytes) : LoadNumber<double>(bytes), out.json());
    return true;
  }
  const bool is_unsigned = node.type.meaning == ParquetMeaning::kUnsigned;
  int64_t value = 0;
  switch (node.width) {
    case 1:
      value = is_unsigned ? LoadNumber<uint8_t>(bytes) : LoadNumber<int8_t>(bytes);
      break;
    case 2:
      value = is_unsigned ? LoadNumber<uint16_t>(bytes) : LoadNumber<int16_t>(bytes);
      break;
    case 4:
      value = is_unsigned ? int64_t{LoadNumber<uint32_t>(bytes)} : LoadNumber<int32_t>(bytes);
      break;
    default:
      value = LoadNumber<int64_t>(bytes);
  }
  if (node.milliseconds) value = value / kMillisecondsOfDay - (value % kMillisecondsOfDay < 0 ? 1 : 0);
  AppendParquetInt(node.type, value, out.json());
  return true;
}

// A text, a list or a map.
bool ArrowReader::WriteList(Column& column, int64_t i, RowText& out) {
  using Kind = ArrowNode::Kind;
  const ArrowNode& node = column.node;
  Status status;
  int64_t begin = i * node.elements, end = begin + node.elements;
  if (node.kind != Kind::kFixedList) {
    const int width = node.wide ? 8 : 4;
    const char* bytes = column.offsets.Read(*file_, i * width, 2 * width, status);
    if (bytes == nullptr) return Fail(column, status);
    begin = node.wide ? LoadNumber<int64_t>(bytes) : LoadNumber<int32_t>(bytes);
    end = node.wide ? LoadNumber<int64_t>(bytes + width) : LoadNumber<int32_t>(bytes + width);
  }
  const int64_t most = node.kind == Kind::kText ? column.data.size() : column.children[0]->length;
  if (begin < 0 || end < begin || end > most) {
    return Fail(column, Corrupt(fmt::format("a value from {} to {}, and there are {}; copy or make the file again",
                                            begin, end, most)));
  }
  if (node.kind == Kind::kText) {
    // What is too long for a row is not read either.
    const int64_t size = end - begin;
    const bool too_long = size > limits_.bytes.v;
    const char* bytes = size == 0 || too_long ? "" : column.data.Read(*file_, begin, size, status);
    if (bytes == nullptr) return Fail(column, status);
    if (too_long) {
      out.TooLong();
      return true;
    }
    const std::string_view text(bytes, static_cast<size_t>(size));
    if (out.TakesText(text, node.type.meaning == ParquetMeaning::kText, node.path)) {
      AppendParquetBytes(node.type, text, out.json());
    }
    return true;
  }
  out.AddPart();
  out.Append("[");
  for (int64_t at = begin; at < end; ++at) {
    if (at > begin) out.Append(", ");
    if (node.kind != Kind::kMap) {
      if (!Write(*column.children[0], at, out)) return false;
      continue;
    }
    Column& entry = *column.children[0];
    out.AddPart();
    out.Append("[");
    if (!Write(*entry.children[0], at, out)) return false;
    out.Append(", ");
    if (!Write(*entry.children[1], at, out)) return false;
    out.Append("]");
  }
  out.Append("]");
  return true;
}

}  // namespace temper
