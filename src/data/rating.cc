#include "data/rating.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "data/pair.h"

namespace temper {
namespace {

// Takes the rating out of the row.
Result<bool> TakeRating(OrderedJson& row, const std::string& where) {
  for (const char* key : {"label", "kto_tag"}) {
    const OrderedJson* found = FindValue(row, key);
    if (found == nullptr) continue;
    const std::string text = found->is_string() ? found->get<std::string>() : "";  // a table's cell
    const bool good = *found == true || text == "true" || text == "True";
    if (!good && *found != false && text != "false" && text != "False") {
      return Corrupt(fmt::format(
          "{}: '{}' is {}, but a rating is true (an answer to give) or false (one to avoid): write it so, without "
          "quotes",
          where, key, found->is_string() || found->is_structured() ? found->type_name() : found->dump()));
    }
    row.erase(key);
    return good;
  }
  if (HasPair(row)) {
    return Corrupt(where +
                   ": a pair of answers ('chosen' and 'rejected') has no rating: train on pairs with --task dpo, simpo "
                   "or orpo, or write a row with label true and one with label false");
  }
  return Corrupt(where +
                 ": no rating: task kto reads rows with label (or kto_tag), true or false, beside the prompt and the "
                 "answer (another column: --columns label=COLUMN)");
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

Result<Record> MakeRated(OrderedJson row, RecordFormat format, const std::string& where) {
  if (!row.is_object()) return Corrupt(fmt::format("{}: a row should be an object but is {}", where, row.type_name()));
  TEMPER_ASSIGN_OR_RETURN(const bool good, TakeRating(row, where));
  TEMPER_ASSIGN_OR_RETURN(Record record, MakeRecord(std::move(row), format, where));
  if (record.weight != kUnitWeight) return Unsupported(where + ": 'weight' has no meaning beside a rating: remove it");
  // What was said before the last answer is its prompt; a completion may have several turns.
  const size_t turns = format == RecordFormat::kPromptCompletion ? 0 : record.messages.size();
  for (size_t i = 0; i + 1 < turns; ++i) record.messages[i]["weight"] = 0;
  record.desirable = good;
  return record;
}

}  // namespace temper
