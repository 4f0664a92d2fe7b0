#include "format/parquet/parquet_footer.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "format/parquet/page_codec.h"
#include "format/parquet/thrift_reader.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kTail = 8;  // the footer's size and the magic behind it
constexpr int64_t kMaxFooter = 32 << 20;

// What a footer lists of a column in a row group.
struct ListedChunk {
  bool elsewhere = false, encrypted = false, any = false;
  int64_t type = -1, codec = -1, values = -1, size = -1, data = -1, dictionary = 0;
};

ParquetSchemaElement ReadElement(ThriftReader& in, ThriftType type) {
  ParquetSchemaElement e;
  const auto time = [&](int field, ThriftType of) {  // TimeType and TimestampType
    if (field == 1) {
      e.utc = in.Bool(of);
    } else if (field == 2) {
      in.Struct(of, [&](int unit, ThriftType empty) {
        e.unit = unit;
        in.Skip(empty);
      });
    } else {
      in.Skip(of);
    }
  };
  const auto logical = [&](int kind, ThriftType of) {
    e.logical = kind;
    in.Struct(of, [&](int field, ThriftType value) {
      switch (kind) {
        case 5:  // DECIMAL
          if (field == 1) {
            e.scale = in.Int(value);
          } else {
            in.Skip(value);
          }
          return;
        case 7:  // TIME
        case 8:  // TIMESTAMP
          return time(field, value);
        case 10:  // INTEGER
          if (field == 1) {
            e.bits = in.Int(value);
          } else if (field == 2) {
            e.is_signed = in.Bool(value);
          } else {
            in.Skip(value);
          }
          return;
        default:
          return in.Skip(value);
      }
    });
  };
  in.Struct(type, [&](int id, ThriftType of) {
    switch (id) {
      case 1:
        e.type = in.Int(of);
        if (e.type < 0) e.type = std::numeric_limits<int32_t>::max();  // no type, but no group either
        return;
      case 2:
        e.width = in.Int(of);
        return;
      case 3:
        e.repetition = in.Int(of);
        return;
      case 4:
        e.name = in.Binary(of);
        return;
      case 5:
        e.children = in.Int(of);
        return;
      case 6:
        e.converted = in.Int(of);
        return;
      case 7:
        e.scale = in.Int(of);
        return;
      case 10:
        return in.Struct(of, logical);
      default:
        return in.Skip(of);
    }
  });
  return e;
}

ListedChunk ReadChunk(ThriftReader& in, ThriftType type) {
  ListedChunk chunk;
  const auto about = [&](int id, ThriftType of) {
    chunk.any = true;
    switch (id) {
      case 1:
        chunk.type = in.Int(of);
        return;
      case 4:
        chunk.codec = in.Int(of);
        return;
      case 5:
        chunk.values = in.Int(of);
        return;
      case 7:
        chunk.size = in.Int(of);
        return;
      case 9:
        chunk.data = in.Int(of);
        return;
      case 11:
        chunk.dictionary = in.Int(of);
        return;
      default:
        return in.Skip(of);
    }
  };
  in.Struct(type, [&](int id, ThriftType of) {
    switch (id) {
      case 1:
        chunk.elsewhere = !in.Binary(of).empty();
        return;
      case 3:
        return in.Struct(of, about);
      case 8:  // of encrypted columns
      case 9:
        chunk.encrypted = true;
        return in.Skip(of);
      default:
        return in.Skip(of);
    }
  });
  return chunk;
}

class FooterParser {
 public:
  // `end`: of the bytes of the file that pages may take.
  FooterParser(std::string_view text, int64_t end) : in_(text), end_(end) {}

  Result<ParquetFooter> Parse() {
    bool encrypted = false;
    int64_t rows = -1;
    std::vector<ParquetSchemaElement> elements;
    in_.Struct([&](int id, ThriftType type) {
      switch (id) {
        case 2:
          in_.List(type, [&](ThriftType of) {
            if (!status_.ok()) return in_.Skip(of);
            elements.push_back(ReadElement(in_, of));
            // Each column has at most 64 groups around it, and few have more than 2.
            if (elements.size() > kMaxElements) Fail(Corrupt("the schema has too many columns"));
          });
          if (!in_.ok() || !status_.ok()) return;
          if (auto schema = MakeParquetSchema(elements); schema.ok()) {
            footer_.schema = *std::move(schema);
          } else {
            Fail(schema.status());
          }
          return;
        case 3:
          rows = in_.Int(type);
          return;
        case 4:
          return in_.List(type, [&](ThriftType of) { ReadRowGroup(of); });
        case 8:
          encrypted = true;
          return in_.Skip(type);
        default:
          return in_.Skip(type);
      }
    });
    TEMPER_RETURN_IF_ERROR(status_);
    if (encrypted) return Unsupported("it is encrypted, which is not read: write it without encryption");
    if (!in_.ok()) return Corrupt("its footer is damaged; copy or make the file again");
    if (footer_.schema.leaves.empty()) return Corrupt("its footer has no schema; copy or make the file again");
    for (const ParquetRowGroup& group : footer_.row_groups) footer_.rows += group.rows;
    if (rows != footer_.rows) {
      return Corrupt(fmt::format("its footer counts {} rows, and its row groups have {}", rows, footer_.rows));
    }
    TEMPER_RETURN_IF_ERROR(CheckOverlaps());
    return std::move(footer_);
  }

 private:
  static constexpr size_t kMaxElements = 1 << 16;
  static constexpr int64_t kMaxRows = int64_t{1} << 56;

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  void ReadRowGroup(ThriftType type) {
    const size_t number = footer_.row_groups.size();
    const std::vector<ParquetLeaf>& leaves = footer_.schema.leaves;
    if (!status_.ok()) return in_.Skip(type);
    if (leaves.empty()) return Fail(Corrupt("its footer has row groups before its schema"));
    ParquetRowGroup group;
    group.rows = -1;
    std::vector<int64_t> counts;
    in_.Struct(type, [&](int id, ThriftType of) {
      if (id == 3) {
        group.rows = in_.Int(of);
      } else if (id == 1) {
        in_.List(of, [&](ThriftType element) {
          const ListedChunk chunk = ReadChunk(in_, element);
          if (!in_.ok() || !status_.ok()) return;
          if (group.chunks.size() == leaves.size()) {
            return Fail(
                Corrupt(fmt::format("row group {} has more than the {} columns of the schema", number, leaves.size())));
          }
          const ParquetLeaf& leaf = leaves[group.chunks.size()];
          auto placed = Place(chunk, leaf);
          if (!placed.ok()) {
            return Fail(placed.status().WithContext(fmt::format("row group {}, column {}", number, Quoted(leaf.path))));
          }
          group.chunks.push_back(*placed);
        });
      } else {
        in_.Skip(of);
      }
    });
    if (!in_.ok() || !status_.ok()) return;
    if (group.chunks.size() != leaves.size() || group.rows < 0 || group.rows > kMaxRows) {
      return Fail(Corrupt(fmt::format("row group {} has {} columns and {} rows, and the schema has {} columns", number,
                                      group.chunks.size(), group.rows, leaves.size())));
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const bool list = leaves[i].max_repetition > 0;
      if (list ? group.chunks[i].values >= group.rows : group.chunks[i].values == group.rows) continue;
      return Fail(Corrupt(fmt::format("row group {} has {} rows, and its column {} {} values", number, group.rows,
                                      Quoted(leaves[i].path), group.chunks[i].values)));
    }
    footer_.row_groups.push_back(std::move(group));
  }

  Result<ParquetChunk> Place(const ListedChunk& c, const ParquetLeaf& leaf) const {
    if (c.encrypted) return Unsupported("it is encrypted, which is not read: write the file without encryption");
    if (c.elsewhere) return Unsupported("its pages are in another file, which is not read");
    if (c.type != static_cast<int64_t>(leaf.type.storage)) {
      return Corrupt(
          fmt::format("it is of type {} here and {} in the schema", c.type, static_cast<int64_t>(leaf.type.storage)));
    }
    TEMPER_RETURN_IF_ERROR(PageCodec::Check(c.codec));
    if (c.values == 0) return ParquetChunk{.codec = c.codec};  // pyarrow gives no place then
    const bool has_dictionary = c.dictionary > 0 && c.dictionary < c.data;
    const int64_t begin = has_dictionary ? c.dictionary : c.data;
    if (c.values < 0 || c.size < 0 || begin < static_cast<int64_t>(kParquetMagic.size()) || begin > end_ ||
        c.size > end_ - begin) {
      return Corrupt(fmt::format("{} values in {} bytes at byte {}, and the file has {} bytes for pages", c.values,
                                 c.size, begin, end_));
    }
    return ParquetChunk{.begin = begin, .end = begin + c.size, .values = c.values, .codec = c.codec};
  }

  Status CheckOverlaps() const {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const ParquetRowGroup& group : footer_.row_groups) {
      for (const ParquetChunk& chunk : group.chunks) {
        if (chunk.begin < chunk.end) ranges.emplace_back(chunk.begin, chunk.end);
      }
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first >= ranges[i - 1].second) continue;
      return Corrupt(fmt::format("the pages of two columns overlap: bytes {} to {} and {} to {}", ranges[i - 1].first,
                                 ranges[i - 1].second, ranges[i].first, ranges[i].second));
    }
    return OkStatus();
  }

  ThriftReader in_;
  const int64_t end_;
  ParquetFooter footer_;
  Status status_;
};

}  // namespace

Result<ParquetFooter> ReadParquetFooter(const RandomAccessFile& file) {
  const std::string& path = file.path();
  const int64_t size = file.size().v;
  const auto cut_off = [&] {
    return Corrupt(
        fmt::format("{}: a Parquet file ends in its footer, and this one (of {} bytes) does not: it was cut "
                    "off, or is still being written; copy or make it again",
                    path, size));
  };
  if (size < static_cast<int64_t>(kParquetMagic.size()) + kTail) return cut_off();
  char tail[kTail];
  TEMPER_RETURN_IF_ERROR(file.ReadAt(size - kTail, std::as_writable_bytes(std::span(tail))));
  const std::string_view magic(tail + 4, 4);
  if (magic == kEncryptedParquetMagic) {
    return Unsupported(path + ": it is encrypted, which is not read: write it without encryption");
  }
  if (magic != kParquetMagic) return cut_off();
  int64_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(tail[i]);
  const int64_t room = size - kTail - static_cast<int64_t>(kParquetMagic.size());
  if (length > room || length > kMaxFooter) {
    return Corrupt(fmt::format("{}: a footer of {} bytes, and {}; copy or make the file again", path, length,
                               length > room ? fmt::format("the file has room for {}", room)
                                             : fmt::format("at most {} are read", kMaxFooter)));
  }
  std::string text(static_cast<size_t>(length), '\0');
  const int64_t end = size - kTail - length;
  TEMPER_RETURN_IF_ERROR(file.ReadAt(end, std::as_writable_bytes(std::span(text))));
  auto footer = FooterParser(text, end).Parse();
  if (!footer.ok()) return footer.status().WithContext(path);
  return footer;
}

}  // namespace temper
