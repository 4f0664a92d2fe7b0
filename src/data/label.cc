#include "data/label.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/pair.h"
#include "format/json.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr const char* kReads = "text, sentence, messages, conversations or input_ids";

bool HasClass(RowUse use) {
  return FactsOf(use).gives == Section::kLabel;
}

// As text; nullopt: none.
Result<std::optional<std::string>> LabelAsText(const OrderedJson& value, const char* key, const std::string& where) {
  if (value.is_string()) return std::optional(value.get<std::string>());
  if (value.is_number_integer()) return std::optional(DumpJson(value));
  // As pandas writes a column of integers in which some are missing.
  if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() == std::floor(value.get<double>()))
    return std::optional(fmt::format("{:.0f}", value.get<double>()));
  return Corrupt(fmt::format("{}: '{}' is {}, but a class is a text or a whole number", where, key,
                             value.is_number() ? DumpJson(value) : value.type_name()));
}

// Takes the label out of the row.
Result<std::optional<std::string>> TakeLabel(OrderedJson& row, RowUse use, const std::string& where) {
  for (const char* key : {"label", "labels"}) {
    const OrderedJson* found = FindValue(row, key);
    if (found == nullptr || (found->is_array() && std::string_view(key) == "labels")) continue;
    if (!HasClass(use)) {  // whatever it is
      row.erase(key);
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> label, LabelAsText(*found, key, where));
    row.erase(key);
    return label;
  }
  return std::optional<std::string>();
}

Status NoLabel(const OrderedJson& row, const std::string& where) {
  if (row.contains("label")) {
    return Corrupt(where + ": 'label' is null: give the row its class, or leave it out");
  }
  std::string fields;
  for (const auto& [key, value] : row.items()) fields += (fields.empty() ? "'" : ", '") + key.substr(0, 40) + "'";
  return Corrupt(
      fmt::format("{}: no label. The row has {}; task {} reads {} with label (another column: "
                  "--columns label=COLUMN)",
                  where, fields.empty() ? "nothing" : fields, TasksThatRead({RowUse::kLabels}), kReads));
}

void NameText(OrderedJson& row) {
  if (row.contains("text") || !row.contains("sentence")) return;
  row["text"] = std::move(row["sentence"]);
  row.erase("sentence");
}

}  // namespace

Result<RecordFormat> DetectSequence(OrderedJson row, RowUse use, const std::string& where, const ColumnMap& columns) {
  if (HasPair(row) && !HasClass(use)) {
    return Corrupt(where +
                   ": a pair of answers ('chosen' and 'rejected'), but one text of each row is judged: temper eval "
                   "measures a reward model on pairs, or write each answer as a row");
  }
  if (HasPair(row)) {
    return Corrupt(
        fmt::format("{}: pairs of answers ('chosen' and 'rejected') have no class: pairs are read by --task {}", where,
                    TasksThatRead({RowUse::kPairs, RowUse::kRanked})));
  }
  TEMPER_ASSIGN_OR_RETURN(const auto label, TakeLabel(row, use, where));
  if (!label && HasClass(use)) return NoLabel(row, where);
  NameText(row);
  TEMPER_ASSIGN_OR_RETURN(const RecordFormat format, DetectFormat(row, where, &columns));
  const bool known = format == RecordFormat::kText || format == RecordFormat::kMessages ||
                     format == RecordFormat::kConversations || format == RecordFormat::kTokens;
  if (known) return format;
  return Unsupported(
      fmt::format("{}: rows are {}, but a class is that of {}: give what is to be judged as 'text' or "
                  "'messages'",
                  where, FormatName(format), kReads));
}

Result<Record> MakeSequence(OrderedJson row, RecordFormat format, RowUse use, const std::string& where) {
  if (!row.is_object()) {
    return Corrupt(fmt::format("{}: a row should be an object but is {}", where, row.type_name()));
  }
  TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> label, TakeLabel(row, use, where));
  if (!label && HasClass(use)) return NoLabel(row, where);
  NameText(row);
  TEMPER_ASSIGN_OR_RETURN(Record record, MakeRecord(std::move(row), format, where));
  if (record.weight != kUnitWeight) return Unsupported(where + ": 'weight' has no meaning beside a label: remove it");
  record.label = std::move(label);
  return record;
}

}  // namespace temper
