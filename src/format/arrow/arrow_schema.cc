#include "format/arrow/arrow_schema.h"

#include <fmt/core.h>

#include <set>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "format/json_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int kMaxArrowDepth = 64;
constexpr int kMaxArrowNodes = 8192;  // 4096 columns, most of them in lists

// Schema.fbs, union Type
enum ArrowType : uint8_t {
  kArrowNull = 1,
  kArrowInt = 2,
  kArrowFloatingPoint = 3,
  kArrowBinary = 4,
  kArrowUtf8 = 5,
  kArrowBool = 6,
  kArrowDecimal = 7,
  kArrowDate = 8,
  kArrowTime = 9,
  kArrowTimestamp = 10,
  kArrowList = 12,
  kArrowStruct = 13,
  kArrowFixedSizeBinary = 15,
  kArrowFixedSizeList = 16,
  kArrowMap = 17,
  kArrowDuration = 18,
  kArrowLargeBinary = 19,
  kArrowLargeUtf8 = 20,
  kArrowLargeList = 21,
};

class ArrowTree {
 public:
  explicit ArrowTree(FlatReader& in) : in_(in) {}

  Status Fields(const FlatVector& fields, const std::string& path, int depth, std::vector<ArrowNode>& out) {
    std::set<std::string> names;
    for (size_t i = 0; i < fields.count && in_.ok(); ++i) {
      TEMPER_RETURN_IF_ERROR(Field(in_.TableOf(fields, i), path, depth, out.emplace_back()));
      if (names.insert(out.back().name).second) continue;
      return Corrupt(fmt::format("it has the column {} twice", Quoted(out.back().name)));
    }
    return OkStatus();
  }

 private:
  Status Field(FlatTable field, const std::string& path, int depth, ArrowNode& node) {
    node.name = in_.Text(field, 0);
    node.path = path + node.name;
    if (!utf8::IsValid(node.name)) return Corrupt(fmt::format("the name of column {} is not UTF-8", Quoted(node.path)));
    AppendJsonString(node.name, node.key);
    node.key += ": ";
    if (++nodes_ > kMaxArrowNodes || depth > kMaxArrowDepth) {
      return Corrupt("it has too many columns, or they are nested too deep");
    }
    const auto type = in_.Scalar<uint8_t>(field, 2, 0);
    if (in_.Table(field, 4)) {
      return Unsupported(fmt::format("the column {} is encoded by a dictionary, which is not read: write it as Parquet",
                                     Quoted(node.path)));
    }
    const auto details = in_.Table(field, 3);
    const FlatVector children = in_.Vector(field, 5, sizeof(uint32_t));
    if (!details) return in_.ok() ? Corrupt(fmt::format("the column {} has no type", Quoted(node.path))) : OkStatus();
    if (!Value(type, *details, node)) {
      return Unsupported(
          fmt::format("the column {} has the type {} of Schema.fbs, which is not read: write the file as "
                      "Parquet",
                      Quoted(node.path), type));
    }
    TEMPER_RETURN_IF_ERROR(Fields(children, node.path + ".", depth + 1, node.children));
    if (!in_.ok()) return OkStatus();
    const bool list = node.kind == ArrowNode::Kind::kList || node.kind == ArrowNode::Kind::kFixedList;
    bool whole = list ? node.children.size() == 1 : node.kind == ArrowNode::Kind::kStruct || node.children.empty();
    if (node.kind == ArrowNode::Kind::kMap) {
      whole = node.children.size() == 1 && node.children[0].kind == ArrowNode::Kind::kStruct &&
              node.children[0].children.size() == 2;
    }
    return whole ? OkStatus()
                 : Corrupt(fmt::format("the column {} has {} children", Quoted(node.path), children.count));
  }

  // False: a type that is not read.
  bool Value(uint8_t type, FlatTable about, ArrowNode& node) {
    const auto number = [&](int width, ParquetMeaning meaning, int scale = 0) {
      node.kind = ArrowNode::Kind::kNumber;
      node.width = width;
      node.type = {.storage = ParquetStorage::kInt64, .meaning = meaning, .scale = scale};
      return true;
    };
    const auto text = [&](bool wide, ParquetMeaning meaning) {
      node.kind = ArrowNode::Kind::kText;
      node.wide = wide;
      node.type.meaning = meaning;
      return true;
    };
    const auto fixed = [&](int width, ParquetMeaning meaning, int scale = 0) {
      node.kind = ArrowNode::Kind::kFixedBytes;
      node.width = width;
      node.type = {.storage = ParquetStorage::kFixedBytes, .meaning = meaning, .width = width, .scale = scale};
      return width > 0 && width <= 1 << 20;
    };
    const auto digits = [](int unit) { return unit * 3; };  // SECOND, MILLISECOND, MICROSECOND, NANOSECOND
    switch (type) {
      case kArrowNull:
        node.kind = ArrowNode::Kind::kNull;
        return true;
      case kArrowInt: {
        const int bits = in_.Scalar<int32_t>(about, 0, 0);
        const bool is_signed = in_.Scalar<uint8_t>(about, 1, 0) != 0;
        number(bits / 8, is_signed ? ParquetMeaning::kInt : ParquetMeaning::kUnsigned);
        return bits == 8 || bits == 16 || bits == 32 || bits == 64;
      }
      case kArrowFloatingPoint: {
        const int precision = in_.Scalar<int16_t>(about, 0, 0);
        if (precision == 0) return fixed(2, ParquetMeaning::kHalf);
        node.is_float = true;
        return number(precision == 1 ? 4 : 8, ParquetMeaning::kFloat) && (precision == 1 || precision == 2);
      }
      case kArrowBinary:
      case kArrowLargeBinary:
        return text(type == kArrowLargeBinary, ParquetMeaning::kBinary);
      case kArrowUtf8:
      case kArrowLargeUtf8:
        return text(type == kArrowLargeUtf8, ParquetMeaning::kText);
      case kArrowBool:
        node.kind = ArrowNode::Kind::kBool;
        node.type.meaning = ParquetMeaning::kBool;
        return true;
      case kArrowDecimal: {
        const int scale = in_.Scalar<int32_t>(about, 1, 0);
        return fixed(in_.Scalar<int32_t>(about, 2, 128) / 8, ParquetMeaning::kDecimal, scale) && scale >= 0 &&
               scale <= 1000;
      }
      case kArrowDate:
        node.milliseconds = in_.Scalar<int16_t>(about, 0, 1) != 0;
        return number(node.milliseconds ? 8 : 4, ParquetMeaning::kDate);
      case kArrowTime: {
        const int unit = in_.Scalar<int16_t>(about, 0, 1);
        return number(in_.Scalar<int32_t>(about, 1, 32) == 32 ? 4 : 8, ParquetMeaning::kTime, digits(unit)) &&
               unit >= 0 && unit <= 3;
      }
      case kArrowTimestamp: {
        const int unit = in_.Scalar<int16_t>(about, 0, 0);
        number(8, ParquetMeaning::kTimestamp, digits(unit));
        node.type.utc = !in_.Text(about, 1).empty();
        return unit >= 0 && unit <= 3;
      }
      case kArrowDuration:
        return number(8, ParquetMeaning::kInt);
      case kArrowFixedSizeBinary:
        return fixed(in_.Scalar<int32_t>(about, 0, 0), ParquetMeaning::kBinary);
      case kArrowList:
      case kArrowLargeList:
        node.kind = ArrowNode::Kind::kList;
        node.wide = type == kArrowLargeList;
        return true;
      case kArrowFixedSizeList:
        node.kind = ArrowNode::Kind::kFixedList;
        node.elements = in_.Scalar<int32_t>(about, 0, 0);
        return node.elements >= 0;
      case kArrowStruct:
        node.kind = ArrowNode::Kind::kStruct;
        return true;
      case kArrowMap:
        node.kind = ArrowNode::Kind::kMap;
        return true;
      default:
        return false;
    }
  }

  FlatReader& in_;
  int nodes_ = 0;
};

}  // namespace

Result<ArrowNode> ReadArrowSchema(FlatReader& in, FlatTable schema) {
  if (in.Scalar<int16_t>(schema, 0, 0) != 0) return Unsupported("it is of a big-endian machine, which is not read");
  ArrowNode root;
  root.kind = ArrowNode::Kind::kStruct;
  TEMPER_RETURN_IF_ERROR(
      ArrowTree(in).Fields(in.Vector(schema, 1, sizeof(uint32_t)), /*path=*/"", /*depth=*/0, root.children));
  if (in.ok() && root.children.empty()) return Corrupt("it has no columns");
  return root;
}

}  // namespace temper
