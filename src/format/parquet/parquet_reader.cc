#include "format/parquet/parquet_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "format/parquet/value_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

void AddFieldNames(const ParquetNode& node, std::vector<std::string>& names) {
  for (const ParquetNode& child : node.children) {
    names.push_back(child.name);
    AddFieldNames(child, names);
  }
}

}  // namespace

ParquetReader::ParquetReader(std::unique_ptr<RandomAccessFile> file, ParquetFooter footer, RowLimits limits)
    : file_(std::move(file)), footer_(std::move(footer)), limits_(limits), budget_(file_->size().v), packed_(budget_) {
  for (const ParquetLeaf& leaf : footer_.schema.leaves) {
    columns_.push_back(std::make_unique<ColumnReader>(*file_, leaf, codec_, budget_, packed_));
  }
  AddFieldNames(footer_.schema.root, names_);
}

Result<std::unique_ptr<ParquetReader>> ParquetReader::Open(std::unique_ptr<RandomAccessFile> file, RowLimits limits) {
  TEMPER_ASSIGN_OR_RETURN(ParquetFooter footer, ReadParquetFooter(*file));
  return std::unique_ptr<ParquetReader>(new ParquetReader(std::move(file), std::move(footer), limits));
}

std::vector<std::string> ParquetReader::columns() const {
  std::vector<std::string> names;
  for (const ParquetNode& column : footer_.schema.root.children) names.push_back(column.name);
  return names;
}

Bytes ParquetReader::bytes_read() const {
  Bytes sum;
  for (const auto& column : columns_) sum += Bytes{column->bytes_read()};
  return {std::min(sum.v, file_->size().v)};
}

bool ParquetReader::Fail(const Status& status) {
  if (status_.ok()) status_ = status;
  return false;
}

bool ParquetReader::EndRowGroup() {
  for (const auto& column : columns_) {
    if (column->ended()) continue;
    return Fail(Corrupt(
        fmt::format("{}: row group {}, column {}: it has more values than its rows; copy or make the file again",
                    path(), row_group_ - 1, Quoted(column->leaf().path))));
  }
  return true;
}

bool ParquetReader::BeginRowGroup() {
  const ParquetRowGroup& group = footer_.row_groups[row_group_];
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!columns_[i]->Begin(group.chunks[i], row_group_)) return Fail(columns_[i]->status());
  }
  ++row_group_;
  left_ = group.rows;
  return true;
}

Result<bool> ParquetReader::Next(JsonRow& row) {
  while (status_.ok() && left_ == 0) {
    if (!EndRowGroup()) break;
    if (row_group_ == footer_.row_groups.size()) return false;
    BeginRowGroup();
  }
  TEMPER_RETURN_IF_ERROR(status_);
  RowText text(row, limits_);
  for (const auto& column : columns_) {
    if (column->ended() || column->repetition() != 0) Disagree(footer_.schema.root);
  }
  if (status_.ok()) Write(footer_.schema.root, text);
  TEMPER_RETURN_IF_ERROR(status_);
  text.Check();
  --left_;
  return true;
}

bool ParquetReader::Disagree(const ParquetNode& node) {
  return Fail(
      Corrupt(fmt::format("{}: row group {}: the columns of {} disagree on where its values are in the row {} "
                          "before the group's end; copy or make the file again",
                          path(), row_group_ - 1, Quoted(node.name), left_)));
}

bool ParquetReader::SkipNothing(const ParquetNode& node, int definition) {
  for (int i = 0; i < node.leaves; ++i) {
    ColumnReader& column = *columns_[static_cast<size_t>(node.first_leaf + i)];
    if (column.ended() || column.definition() >= definition) return Disagree(node);
    if (!column.Advance()) return Fail(column.status());
  }
  return true;
}

bool ParquetReader::Write(const ParquetNode& node, RowText& out) {
  if (!out.AddValue()) {
    return Fail(
        Unsupported(fmt::format("{}: row group {}, {}: the row {} before the group's end has too many values: "
                                "split it",
                                path(), row_group_ - 1, Quoted(node.name), left_)));
  }
  if (node.kind == ParquetNode::Kind::kValue) return WriteValue(node, out);
  if (first(node).ended()) return Disagree(node);
  if (node.null && first(node).definition() < node.defined) {
    out.Append("null");
    return SkipNothing(node, node.defined);
  }
  out.AddPart();
  if (node.kind == ParquetNode::Kind::kStruct) {
    out.Append("{");
    for (const ParquetNode& child : node.children) {
      if (&child != &node.children.front()) out.Append(", ");
      out.Append(child.key);
      out.AddPart();
      if (!Write(child, out)) return false;
    }
    out.Append("}");
    return true;
  }
  return WriteList(node, out);
}

bool ParquetReader::WriteList(const ParquetNode& node, RowText& out) {
  ColumnReader& leader = first(node);
  if (leader.definition() < node.element) {
    out.Append("[]");
    return SkipNothing(node, node.element);
  }
  out.Append("[");
  for (bool more = true; more;) {
    if (node.kind == ParquetNode::Kind::kMap) {
      out.AddPart();
      for (const ParquetNode& child : node.children) {
        out.Append(&child == &node.children.front() ? "[" : ", ");
        if (!Write(child, out)) return false;
      }
      out.Append("]");
    } else if (!Write(node.children.front(), out)) {
      return false;
    }
    more = leader.repetition() == node.repeated;
    for (int i = 0; i < node.leaves; ++i) {
      const int repetition = columns_[static_cast<size_t>(node.first_leaf + i)]->repetition();
      if (repetition > node.repeated || (repetition == node.repeated) != more) return Disagree(node);
    }
    out.Append(more ? ", " : "]");
  }
  return true;
}

bool ParquetReader::WriteValue(const ParquetNode& node, RowText& out) {
  ColumnReader& column = first(node);
  if (column.ended()) return Disagree(node);
  if (column.definition() < node.defined) {
    if (!node.null) return Disagree(node);
    out.Append("null");
  } else {
    switch (node.type.storage) {
      case ParquetStorage::kBool:
      case ParquetStorage::kInt32:
      case ParquetStorage::kInt64:
        AppendParquetInt(node.type, column.integer(), out.json());
        break;
      case ParquetStorage::kFloat:
      case ParquetStorage::kDouble:
        AppendParquetNumber(node.type, column.number(), out.json());
        break;
      default:
        if (out.TakesText(column.text(), node.type.meaning == ParquetMeaning::kText, column.leaf().path)) {
          AppendParquetBytes(node.type, column.text(), out.json());
        }
    }
  }
  return column.Advance() || Fail(column.status());
}

}  // namespace temper
