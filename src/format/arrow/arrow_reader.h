// ArrowReader: the rows of an Arrow file or stream (format/columnar_reader.h): what `datasets` keeps in its cache and
// writes with save_to_disk.
//
// Memory: of each buffer of a column 64 KiB (fewer where there are hundreds), or its longest text, and the longest row.
// One thread at a time. Source: arrow/format/Message.fbs and Columnar.rst.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "format/arrow/arrow_schema.h"
#include "format/columnar_reader.h"

namespace temper {

// With what a file begins, and a stream.
inline constexpr std::string_view kArrowMagic = "ARROW1";
inline constexpr std::string_view kArrowStreamMagic = "\xff\xff\xff\xff";

class ArrowReader final : public ColumnarReader {
 public:
  // Errors: the file is cut off or damaged where it begins; columns of types that are not read.
  static Result<std::unique_ptr<ArrowReader>> Open(std::unique_ptr<RandomAccessFile> file, RowLimits limits);
  ~ArrowReader() override;

  Result<bool> Next(JsonRow& row) override;
  std::vector<std::string> columns() const override;
  const std::vector<std::string>& names() const override { return names_; }
  Bytes bytes_read() const override { return {at_}; }
  const std::string& path() const override { return file_->path(); }

 private:
  class Buffer;
  struct Column;  // a node with its buffers in the current batch
  struct Message;

  ArrowReader(std::unique_ptr<RandomAccessFile> file, RowLimits limits);

  Status ReadSchema();
  // The next message, or one without a header at the end. Moves at_ behind it.
  Result<Message> NextMessage();
  Status BeginBatch(const Message& message);
  // Gives `column` and those below it the next buffers of the batch. `rows`: that it must have; -1: any number.
  Status Place(Column& column, int64_t rows, const Message& message, FlatReader& in, const FlatVector& nodes,
               const FlatVector& buffers, size_t& node, size_t& buffer) const;
  std::unique_ptr<Column> MakeColumn(const ArrowNode& node);
  bool Write(Column& column, int64_t i, RowText& out);
  bool WriteList(Column& column, int64_t i, RowText& out);
  bool WriteNumber(Column& column, int64_t i, RowText& out);
  bool Fail(const Column& column, const Status& status);

  const std::unique_ptr<RandomAccessFile> file_;
  const RowLimits limits_;
  ArrowNode root_;
  std::unique_ptr<Column> column_;  // of root_
  std::vector<std::string> names_;
  int64_t window_ = 0;          // bytes of each buffer that are in memory
  int64_t at_ = 0;              // in the file, of the next message
  int64_t batches_ = 0;         // begun
  int64_t row_ = 0, rows_ = 0;  // of the current batch
  Status status_;
};

}  // namespace temper
