#include "data/rating.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/pair.h"
#include "data/template/conversation.h"
#include "format/json.h"
#include "objective/objective.h"

namespace temper {
namespace {

// Takes the rating out of the row.
Result<bool> TakeRating(OrderedJson& row, const std::string& where) {
  std::optional<bool> rating;
  for (const char* key : {"label", "kto_tag"}) {
    const OrderedJson* found = FindValue(row, key);
    if (found == nullptr) continue;
    std::string text = found->is_string() ? found->get<std::string>() : "";  // a table's cell: true, True, TRUE
    std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    const bool good = *found == true || text == "true";
    if (!good && *found != false && text != "false") {
      return Corrupt(fmt::format(
          "{}: '{}' is {}, but a rating is true (an answer to give) or false (one to avoid): write one of these", where,
          key, found->is_string() || found->is_structured() ? found->type_name() : DumpJson(*found)));
    }
    if (rating.value_or(good) != good) {
      return Corrupt(where + ": 'label' and 'kto_tag' say the opposite of each other: remove one of them");
    }
    row.erase(key);
    rating = good;
  }
  if (rating) return *rating;
  if (HasPair(row)) {
    return Corrupt(fmt::format(
        "{}: a pair of answers ('chosen' and 'rejected') has no rating: pairs are read by --task {}, or write a row "
        "with label true and one with label false",
        where, TasksThatRead({RowUse::kPairs})));
  }
  return Corrupt(
      fmt::format("{}: no rating: task {} reads rows with label (or kto_tag), true or false, beside the prompt and the "
                  "answer (another column: --columns label=COLUMN)",
                  where, TasksThatRead({RowUse::kRated})));
}

// An answer counts as a whole, or not at all.
Status CheckWeights(const Record& record, const std::string& where) {
  for (const OrderedJson& message : record.messages) {
    const TokenWeight weight = temper::WeightOf(message);
    if (weight == 0 || weight == kUnitWeight) continue;
    return Unsupported(fmt::format("{}: an answer has the weight {}, which has no meaning beside a rating: remove it",
                                   where, WeightValue(weight)));
  }
  return OkStatus();
}

}  // namespace

Result<RecordFormat> DetectRated(OrderedJson row, const std::string& where, const ColumnMap& columns) {
  TEMPER_RETURN_IF_ERROR(TakeRating(row, where).status());
  TEMPER_ASSIGN_OR_RETURN(const RecordFormat format, DetectFormat(row, where, &columns));
  const bool answers = format != RecordFormat::kText && format != RecordFormat::kTokens;
  if (answers) return format;
  return Unsupported(
      fmt::format("{}: rows are {}, but a rating is that of an answer: give a prompt and its completion, or messages",
                  where, FormatName(format)));
}

Result<Record> MakeRated(OrderedJson row, RecordFormat format, const std::string& where, const std::string& separator) {
  if (!row.is_object()) return Corrupt(fmt::format("{}: a row should be an object but is {}", where, row.type_name()));
  TEMPER_ASSIGN_OR_RETURN(const bool good, TakeRating(row, where));
  TEMPER_ASSIGN_OR_RETURN(Record record, MakeRecord(std::move(row), format, where, separator));
  if (record.weight != kUnitWeight) return Unsupported(where + ": 'weight' has no meaning beside a rating: remove it");
  // What was said before the last answer is its prompt, what follows it is not read; a completion may have several
  // turns.
  if (format != RecordFormat::kPromptCompletion) {
    OrderedJson& messages = record.messages;
    while (!messages.empty() && messages.back().value("role", "") != "assistant") messages.erase(messages.size() - 1);
    for (size_t i = 0; i + 1 < messages.size(); ++i) messages[i]["weight"] = 0;
  }
  TEMPER_RETURN_IF_ERROR(CheckWeights(record, where));
  record.desirable = good;
  return record;
}

}  // namespace temper
