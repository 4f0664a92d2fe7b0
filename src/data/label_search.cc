#include "data/label_search.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "data/records.h"
#include "format/data_file_name.h"
#include "format/quoted.h"

namespace temper {

Result<ClassNames> FindClasses(Env& env, std::span<const DataInput> inputs,
                               const std::function<void(Bytes, const std::string&)>& progress) {
  std::set<std::string> labels;
  for (const DataInput& input : inputs) {
    TEMPER_RETURN_IF_ERROR(CheckUse(input));
    TEMPER_ASSIGN_OR_RETURN(const auto reader, RecordReader::Open(env, input.path, input.reading, RowUse::kLabels));
    RawRow row;
    for (int64_t n = 0; n < input.max_rows; ++n) {
      TEMPER_ASSIGN_OR_RETURN(const bool more, reader->Next(row));
      if (!more) break;
      const auto record = reader->Parse(row);
      if (!record.ok()) continue;
      labels.insert(*record->label);
      if (labels.size() > kMostClasses) {
        return Unsupported(
            fmt::format("{} has more than {} different labels: name the column of classes (--columns label=COLUMN)",
                        input.path, kMostClasses));
      }
      if (progress && n % 1024 == 0) progress(reader->bytes_read(), input.path);
    }
  }
  if (labels.size() >= 2) return InOrder({labels.begin(), labels.end()});
  const std::string& path = inputs.front().path;
  if (labels.empty()) return Corrupt(path + ": no row with a label can be read");
  return InvalidArgument(
      fmt::format("{}: all rows have the label {}, and there is nothing to tell apart: add rows of other classes", path,
                  Quoted(*labels.begin())));
}

}  // namespace temper
