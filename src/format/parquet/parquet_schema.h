// ParquetSchema: the columns of a Parquet file as a tree of what its rows hold: values, structs, lists, maps.
//
// A column of the file is a leaf of the tree. It stores its values without nulls, and for each place two levels
// (Dremel): the definition level says down to which node of the tree something is there, the repetition level which
// list goes on. Source: parquet-format, LogicalTypes.md and parquet.thrift.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// How values are stored; numbers as in parquet.thrift.
enum class ParquetStorage : uint8_t { kBool, kInt32, kInt64, kInt96, kFloat, kDouble, kBytes, kFixedBytes };

// What they mean.
enum class ParquetMeaning : uint8_t {
  kBool,
  kInt,
  kUnsigned,
  kFloat,
  kText,
  kBinary,
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kUuid,
  kHalf,  // a float of 16 bits
  kNull,  // there are none
};

struct ParquetType {
  ParquetStorage storage = ParquetStorage::kBytes;
  ParquetMeaning meaning = ParquetMeaning::kBinary;
  int width = 0;     // bytes of kFixedBytes
  int bits = 64;     // of an integer
  int scale = 0;     // digits behind a decimal's point, or of a second
  bool utc = false;  // a timestamp has a time zone
};

struct ParquetNode {
  enum class Kind : uint8_t { kValue, kStruct, kList, kMap };

  std::string name, key;  // `"name": `, as JSON
  Kind kind = Kind::kValue;
  ParquetType type;   // of a value
  bool null = false;  // whether it may be null
  // Definition levels: from which on it is not null, and a list or map has an element.
  int defined = 0, element = 0;
  int repeated = 0;                   // the repetition level at which a list or map goes on
  std::vector<ParquetNode> children;  // a struct's fields; a list's element; a map's key and value
  int first_leaf = 0, leaves = 0;     // the columns below
};

// Of a column.
struct ParquetLeaf {
  std::string path;  // "messages.list.element.role"
  ParquetType type;
  int max_definition = 0, max_repetition = 0;
};

// An element of the footer's list, which is the tree in depth-first order.
struct ParquetSchemaElement {
  std::string name;
  int64_t type = -1;       // -1: it is a group
  int64_t repetition = 0;  // 0: required, 1: optional, 2: repeated
  int64_t children = 0;
  int64_t width = 0, converted = -1, scale = 0;
  int64_t logical = -1;  // the field of LogicalType that is set
  int64_t unit = 0;      // of a time: 1 ms, 2 us, 3 ns
  int64_t bits = 0;
  bool is_signed = true, utc = false;
};

struct ParquetSchema {
  ParquetNode root;  // a struct
  std::vector<ParquetLeaf> leaves;
};

// Errors (without a place): levels or counts that contradict each other, columns of one name, too many or too deep.
Result<ParquetSchema> MakeParquetSchema(const std::vector<ParquetSchemaElement>& elements);

}  // namespace temper
