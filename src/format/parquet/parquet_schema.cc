#include "format/parquet/parquet_schema.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "base/utf8.h"
#include "format/json_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr size_t kMaxLeaves = 4096;  // as columns of a table
constexpr int kMaxSchemaDepth = 64;
constexpr int64_t kMaxFixedWidth = 1 << 20;

// parquet.thrift
enum SchemaRepetition : int64_t { kOptional = 1, kRepeated = 2 };
enum ConvertedType : int64_t {
  kConvertedUtf8 = 0,
  kConvertedMap = 1,
  kConvertedMapKeyValue = 2,
  kConvertedList = 3,
  kConvertedEnum = 4,
  kConvertedDecimal = 5,
  kConvertedDate = 6,
  kConvertedTimeMillis = 7,
  kConvertedTimeMicros = 8,
  kConvertedTimestampMillis = 9,
  kConvertedTimestampMicros = 10,
  kConvertedUint8 = 11,
  kConvertedUint64 = 14,
  kConvertedInt8 = 15,
  kConvertedInt64 = 18,
  kConvertedJson = 19,
};
enum LogicalTypeField : int64_t {
  kLogicalString = 1,
  kLogicalMap = 2,
  kLogicalList = 3,
  kLogicalEnum = 4,
  kLogicalDecimal = 5,
  kLogicalDate = 6,
  kLogicalTime = 7,
  kLogicalTimestamp = 8,
  kLogicalInteger = 10,
  kLogicalUnknown = 11,
  kLogicalJson = 12,
  kLogicalUuid = 14,
  kLogicalFloat16 = 15,
};

bool IsList(const ParquetSchemaElement& e) {
  return e.logical == kLogicalList || (e.logical < 0 && e.converted == kConvertedList);
}

bool IsMap(const ParquetSchemaElement& e) {
  return e.logical == kLogicalMap ||
         (e.logical < 0 && (e.converted == kConvertedMap || e.converted == kConvertedMapKeyValue));
}

int DigitsOf(const ParquetSchemaElement& e) {
  if (e.converted == kConvertedTimeMillis || e.converted == kConvertedTimestampMillis) return 3;
  return e.unit == 1 ? 3 : e.unit == 3 ? 9 : 6;
}

ParquetMeaning MeaningOf(const ParquetSchemaElement& e, const ParquetType& type) {
  const bool integer = type.storage == ParquetStorage::kInt32 || type.storage == ParquetStorage::kInt64;
  const bool text = type.storage == ParquetStorage::kBytes;
  const auto is = [&](int64_t logical, int64_t converted) {
    return e.logical == logical || (e.logical < 0 && e.converted == converted);
  };
  if (e.logical == kLogicalUnknown) return ParquetMeaning::kNull;
  if (is(kLogicalDecimal, kConvertedDecimal) && (integer || text || type.storage == ParquetStorage::kFixedBytes)) {
    return ParquetMeaning::kDecimal;
  }
  switch (type.storage) {
    case ParquetStorage::kBool:
      return ParquetMeaning::kBool;
    case ParquetStorage::kFloat:
    case ParquetStorage::kDouble:
      return ParquetMeaning::kFloat;
    case ParquetStorage::kInt96:
      return ParquetMeaning::kTimestamp;
    case ParquetStorage::kFixedBytes:
      if (e.logical == kLogicalUuid && type.width == 16) return ParquetMeaning::kUuid;
      return e.logical == kLogicalFloat16 && type.width == 2 ? ParquetMeaning::kHalf : ParquetMeaning::kBinary;
    case ParquetStorage::kBytes:
      return is(kLogicalString, kConvertedUtf8) || is(kLogicalEnum, kConvertedEnum) || is(kLogicalJson, kConvertedJson)
                 ? ParquetMeaning::kText
                 : ParquetMeaning::kBinary;
    case ParquetStorage::kInt32:
    case ParquetStorage::kInt64:
      break;
  }
  if (is(kLogicalDate, kConvertedDate)) return ParquetMeaning::kDate;
  if (is(kLogicalTime, kConvertedTimeMillis) || is(kLogicalTime, kConvertedTimeMicros)) return ParquetMeaning::kTime;
  if (is(kLogicalTimestamp, kConvertedTimestampMillis) || is(kLogicalTimestamp, kConvertedTimestampMicros)) {
    return ParquetMeaning::kTimestamp;
  }
  const bool is_unsigned = e.logical == kLogicalInteger
                               ? !e.is_signed
                               : e.logical < 0 && e.converted >= kConvertedUint8 && e.converted <= kConvertedUint64;
  return is_unsigned ? ParquetMeaning::kUnsigned : ParquetMeaning::kInt;
}

Result<ParquetType> TypeOf(const ParquetSchemaElement& e) {
  if (e.type < 0 || e.type > static_cast<int64_t>(ParquetStorage::kFixedBytes)) {
    return Corrupt(fmt::format("the column {} has the type {}, which Parquet does not know", Quoted(e.name), e.type));
  }
  ParquetType type{.storage = static_cast<ParquetStorage>(e.type)};
  if (type.storage == ParquetStorage::kFixedBytes) {
    if (e.width < 1 || e.width > kMaxFixedWidth) {
      return Corrupt(fmt::format("the column {} has values of {} bytes", Quoted(e.name), e.width));
    }
    type.width = static_cast<int>(e.width);
  }
  type.bits = type.storage == ParquetStorage::kInt32 ? 32 : 64;
  type.meaning = MeaningOf(e, type);
  const bool time = type.meaning == ParquetMeaning::kTime || type.meaning == ParquetMeaning::kTimestamp;
  if (type.meaning == ParquetMeaning::kDecimal && (e.scale < 0 || e.scale > 1000)) {
    return Corrupt(fmt::format("the column {} has decimals of scale {}", Quoted(e.name), e.scale));
  }
  type.scale = time ? DigitsOf(e) : static_cast<int>(e.scale);
  type.utc = type.meaning == ParquetMeaning::kTimestamp && (e.utc || (e.logical < 0 && e.converted >= 0));
  return type;
}

class ParquetTree {
 public:
  explicit ParquetTree(const std::vector<ParquetSchemaElement>& elements) : elements_(elements) {}

  Result<ParquetSchema> Make() {
    ParquetSchema schema;
    if (elements_.empty() || elements_[0].type >= 0) return Corrupt("the schema has no root");
    TEMPER_RETURN_IF_ERROR(Body(0, 0, 0, schema.root));
    if (at_ < elements_.size()) return Corrupt("the schema has columns that belong to no group");
    schema.leaves = std::move(leaves_);
    return schema;
  }

 private:
  // The element at at_ as a field of its parent, whose levels are given.
  Status Field(int definition, int repetition, ParquetNode& node) {
    if (at_ >= elements_.size()) return Corrupt("the schema ends within a group");
    const ParquetSchemaElement& e = elements_[at_];
    if (e.repetition == kRepeated) {  // a list without a name of its own, which is never null
      TEMPER_RETURN_IF_ERROR(Name(e, node));
      node.kind = ParquetNode::Kind::kList;
      node.defined = definition;
      node.element = definition + 1;
      node.repeated = repetition + 1;
      node.first_leaf = static_cast<int>(leaves_.size());
      TEMPER_RETURN_IF_ERROR(Body(definition + 1, repetition + 1, 1, node.children.emplace_back()));
      node.leaves = static_cast<int>(leaves_.size()) - node.first_leaf;
      return OkStatus();
    }
    node.null = e.repetition == kOptional;
    return Body(definition + (node.null ? 1 : 0), repetition, 1, node);
  }

  static Status Name(const ParquetSchemaElement& e, ParquetNode& node) {
    if (!utf8::IsValid(e.name)) return Corrupt(fmt::format("the name of column {} is not UTF-8", Quoted(e.name)));
    node.name = e.name;
    AppendJsonString(e.name, node.key);
    node.key += ": ";
    return OkStatus();
  }

  // What the element at at_ holds, which is there from level `definition` on.
  Status Body(int definition, int repetition, int deeper, ParquetNode& node) {
    const ParquetSchemaElement& e = elements_[at_++];
    if (depth_ + deeper > kMaxSchemaDepth) {
      return Corrupt(fmt::format("columns are nested deeper than {} levels", kMaxSchemaDepth));
    }
    TEMPER_RETURN_IF_ERROR(Name(e, node));
    node.defined = definition;
    node.first_leaf = static_cast<int>(leaves_.size());
    path_.push_back(e.name);
    depth_ += deeper;
    const Status made = e.type >= 0 ? Value(e, definition, repetition, node) : Group(e, definition, repetition, node);
    depth_ -= deeper;
    path_.pop_back();
    node.leaves = static_cast<int>(leaves_.size()) - node.first_leaf;
    return made;
  }

  Status Value(const ParquetSchemaElement& e, int definition, int repetition, ParquetNode& node) {
    if (leaves_.size() == kMaxLeaves) return Corrupt(fmt::format("it has more than {} columns", kMaxLeaves));
    TEMPER_ASSIGN_OR_RETURN(node.type, TypeOf(e));
    std::string path;
    for (size_t i = 1; i < path_.size(); ++i) path += (i > 1 ? "." : "") + path_[i];  // without the root's
    leaves_.push_back(
        {.path = std::move(path), .type = node.type, .max_definition = definition, .max_repetition = repetition});
    return OkStatus();
  }

  Status Group(const ParquetSchemaElement& e, int definition, int repetition, ParquetNode& node) {
    if (e.children < 1 || static_cast<size_t>(e.children) > elements_.size() - at_) {
      return Corrupt(at_ == 1 ? std::string("it has no columns")
                              : fmt::format("the group {} has {} columns", Quoted(e.name), e.children));
    }
    const bool one_repeated = e.children == 1 && elements_[at_].repetition == kRepeated;
    if (one_repeated && (IsList(e) || (IsMap(e) && elements_[at_].type < 0))) {
      const ParquetSchemaElement& inner = elements_[at_];
      node.element = definition + 1;
      node.repeated = repetition + 1;
      if (IsMap(e)) {
        node.kind = ParquetNode::Kind::kMap;
        ParquetNode entry;
        TEMPER_RETURN_IF_ERROR(Body(definition + 1, repetition + 1, 1, entry));
        if (entry.kind != ParquetNode::Kind::kStruct || entry.children.empty() || entry.children.size() > 2) {
          return Corrupt(fmt::format("the map {} has no key and value", Quoted(e.name)));
        }
        node.children = std::move(entry.children);
        return OkStatus();
      }
      node.kind = ParquetNode::Kind::kList;
      // The rules for files of older writers, whose lists have two levels (LogicalTypes.md, "Backward-compatibility").
      const bool is_element = inner.type >= 0 || inner.children != 1 || inner.name == "array" ||
                              inner.name == e.name + "_tuple" || at_ + 1 >= elements_.size() ||
                              elements_[at_ + 1].repetition == kRepeated;
      ParquetNode& element = node.children.emplace_back();
      if (is_element) return Body(definition + 1, repetition + 1, 1, element);
      path_.push_back(inner.name);
      ++at_;
      const Status made = Field(definition + 1, repetition + 1, element);
      path_.pop_back();
      return made;
    }
    node.kind = ParquetNode::Kind::kStruct;
    std::set<std::string> names;
    for (int64_t i = 0; i < e.children; ++i) {
      TEMPER_RETURN_IF_ERROR(Field(definition, repetition, node.children.emplace_back()));
      if (names.insert(node.children.back().name).second) continue;
      return Corrupt(fmt::format("it has the column {} twice", Quoted(node.children.back().name)));
    }
    return OkStatus();
  }

  const std::vector<ParquetSchemaElement>& elements_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> path_;
  std::vector<ParquetLeaf> leaves_;
};

}  // namespace

Result<ParquetSchema> MakeParquetSchema(const std::vector<ParquetSchemaElement>& elements) {
  return ParquetTree(elements).Make();
}

}  // namespace temper
