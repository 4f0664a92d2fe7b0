// Parquet files made by hand, so that they can be wrong: columns of pages with any header, and a footer. For tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper {

// A struct in Thrift's compact protocol. Fields come in ascending order of their ids.
class ThriftText {
 public:
  ThriftText& Int(int id, int64_t value) { return Field(id, 6).Zigzag(value); }
  ThriftText& Text(int id, const std::string& text) {
    Field(id, 8).Varint(text.size());
    text_ += text;
    return *this;
  }
  ThriftText& Struct(int id, const ThriftText& value) {
    Field(id, 12);
    text_ += value.End();
    return *this;
  }
  ThriftText& Structs(int id, const std::vector<ThriftText>& values) {
    Field(id, 9);
    text_ += static_cast<char>(0xFC);
    Varint(values.size());
    for (const ThriftText& value : values) text_ += value.End();
    return *this;
  }
  std::string End() const { return text_ + '\0'; }

 private:
  ThriftText& Field(int id, int type) {
    text_ += static_cast<char>((id - last_) << 4 | type);
    last_ = id;
    return *this;
  }
  ThriftText& Zigzag(int64_t value) {
    return Varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  ThriftText& Varint(uint64_t value) {
    for (; value >= 128; value >>= 7) text_ += static_cast<char>(value | 128);
    text_ += static_cast<char>(value);
    return *this;
  }

  std::string text_;
  int last_ = 0;
};

// `bytes` behind their length, as texts and levels are.
inline std::string WithLength(const std::string& bytes) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(bytes.size() >> 8 * i);
  return out + bytes;
}

struct TestPage {
  int64_t values = 1;
  std::string bytes;      // as they are in the file
  int64_t unpacked = -1;  // their size without compression; -1: they are not packed
  int64_t encoding = 0;   // PLAIN
  bool dictionary = false;
  int64_t packed = -1;  // the size that the header claims; -1: the true one

  std::string Text() const {
    const auto size = static_cast<int64_t>(bytes.size());
    ThriftText header;
    header.Int(1, dictionary ? 2 : 0).Int(2, unpacked < 0 ? size : unpacked).Int(3, packed < 0 ? size : packed);
    const ThriftText about = dictionary ? ThriftText().Int(1, values).Int(2, encoding)
                                        : ThriftText().Int(1, values).Int(2, encoding).Int(3, 3).Int(4, 3);
    return header.Struct(dictionary ? 7 : 5, about).End() + bytes;
  }
};

struct TestColumn {
  std::string name = "text";
  int64_t type = 6;        // BYTE_ARRAY
  int64_t repetition = 0;  // required, optional, repeated
  std::vector<TestPage> pages;
  int64_t codec = 0;
  int64_t values = -1;  // -1: those of its pages
  int64_t begin = -1;   // -1: where its pages are
};

// A file of one row group.
inline std::string ParquetFile(const std::vector<TestColumn>& columns, int64_t rows) {
  std::string file = "PAR1";
  std::vector<ThriftText> schema = {ThriftText().Text(4, "root").Int(5, static_cast<int64_t>(columns.size()))};
  std::vector<ThriftText> chunks;
  for (const TestColumn& column : columns) {
    schema.push_back(ThriftText().Int(1, column.type).Int(3, column.repetition).Text(4, column.name).Int(6, 0));
    const size_t begin = file.size();
    int64_t values = 0;
    for (const TestPage& page : column.pages) {
      file += page.Text();
      values += page.dictionary ? 0 : page.values;
    }
    const bool dictionary = !column.pages.empty() && column.pages[0].dictionary;
    const int64_t at = column.begin < 0 ? static_cast<int64_t>(begin) : column.begin;
    ThriftText about;
    about.Int(1, column.type).Int(4, column.codec).Int(5, column.values < 0 ? values : column.values);
    about.Int(7, static_cast<int64_t>(file.size() - begin));
    about.Int(9, at + (dictionary ? static_cast<int64_t>(column.pages[0].Text().size()) : 0));
    if (dictionary) about.Int(11, at);
    chunks.push_back(ThriftText().Struct(3, about));
  }
  const ThriftText group = ThriftText().Structs(1, chunks).Int(3, rows);
  const std::string footer = ThriftText().Int(1, 1).Structs(2, schema).Int(3, rows).Structs(4, {group}).End();
  return file + footer + WithLength(footer).substr(0, 4) + "PAR1";
}

}  // namespace temper
