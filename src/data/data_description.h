// DataDescription: what a token file says of its samples besides their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/data_statistics.h"
#include "data/record.h"

namespace temper {

struct DataFile {
  std::string path;
  RecordFormat format = RecordFormat::kText;
  std::string format_place;  // the row that decided: "line 1"
  int64_t rows = 0;
  int64_t first_sample = 0;
};

struct DataDescription {
  std::vector<DataFile> files;
  DataStatistics statistics;
};

// As JSON. `key`: all that the samples depend on. Paths of files are left out.
std::string FormatDescription(const DataDescription& about, const std::string& key);
// Errors: kCorrupt if `text` is not such JSON, kNotFound if it was written with another key. `where` names its file.
// `paths`: where the files are now, in the same order.
Result<DataDescription> ParseDescription(std::string_view text, const std::string& key,
                                         const std::vector<std::string>& paths, const std::string& where);

}  // namespace temper
