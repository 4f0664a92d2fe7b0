// ColumnReader: a column of a Parquet file, place by place: at each its levels (format/parquet/parquet_schema.h) and,
// if it is not null, its value. Pages are read and unpacked one at a time, as their places are needed.
//
// Memory: a page, its packed form, and the dictionary of the row group. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "format/parquet/hybrid_decoder.h"
#include "format/parquet/page_buffer.h"
#include "format/parquet/page_codec.h"
#include "format/parquet/parquet_footer.h"
#include "format/parquet/value_decoder.h"

namespace temper {

class ColumnReader {
 public:
  // All must outlive it; columns of a file share codec, budget and `packed`.
  ColumnReader(const RandomAccessFile& file, const ParquetLeaf& leaf, PageCodec& codec, PageBudget& budget,
               PageBuffer& packed)
      : file_(file),
        leaf_(leaf),
        codec_(codec),
        packed_(packed),
        page_(budget),
        dictionary_page_(budget),
        dictionary_share_(budget) {}

  // Goes to the first place of the column in a row group, whose `number` is for errors. False: an error, in status().
  bool Begin(const ParquetChunk& chunk, size_t number);
  // Goes to the next place. False: an error, in status(). REQUIRES: not ended().
  bool Advance() {
    if (definition() == leaf_.max_definition) ++value_;
    ++place_;
    return (place_ < places_ && (definition() != leaf_.max_definition || value_ < values_count_)) || Load();
  }
  bool ended() const { return place_ == places_; }  // of the row group
  const Status& status() const { return status_; }

  // REQUIRES: not ended().
  int definition() const { return definitions_[place_]; }
  // 0 where it has ended.
  int repetition() const { return ended() ? 0 : repetitions_[place_]; }
  // Of this place. REQUIRES: definition() is the leaf's largest; the one that the type is stored in. A text is valid
  // until Advance.
  int64_t integer() const { return values_.ints[value_]; }
  double number() const { return values_.numbers[value_]; }
  std::string_view text() const { return values_.texts[value_]; }

  const ParquetLeaf& leaf() const { return leaf_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct PageHeader;
  static constexpr size_t kBatch = 1024;

  bool Load();        // what place_ needs: levels, and a value if there is one
  bool LoadLevels();  // of the next places
  bool NextPage();
  bool ReadHeader(PageHeader& header);
  // Reads the page's bytes behind its header into `out`, unpacked; the first `plain` of them are not packed.
  bool ReadPage(const PageHeader& header, size_t plain, bool packed, PageBuffer& out);
  bool TakeDictionary(const PageHeader& header);
  bool TakeData(const PageHeader& header);
  bool Fail(const Status& status);  // names the column; gives false

  const RandomAccessFile& file_;
  const ParquetLeaf& leaf_;
  PageCodec& codec_;
  PageBuffer& packed_;
  ParquetChunk chunk_;
  size_t row_group_ = 0;
  int64_t at_ = 0;       // in the file, of the next page
  int64_t left_ = 0;     // places of the chunk that are in no page yet
  int64_t in_page_ = 0;  // places of the page that are not loaded yet
  int64_t bytes_read_ = 0;
  Status status_;

  PageBuffer page_, dictionary_page_;
  PageShare dictionary_share_;  // what dictionary_ takes
  std::optional<ParquetValues> dictionary_;
  HybridDecoder definition_runs_, repetition_runs_;
  std::unique_ptr<ValueDecoder> decoder_;
  ParquetValues values_;
  size_t value_ = 0, values_count_ = 0;  // of values_
  std::array<uint8_t, kBatch> definitions_ = {}, repetitions_ = {};
  size_t place_ = 0, places_ = 0;  // of these
};

}  // namespace temper
