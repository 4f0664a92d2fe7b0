#include "run/grown_model.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/progress_text.h"
#include "checkpoint/export.h"
#include "data/tokenizer/new_tokens.h"
#include "format/json.h"
#include "format/quoted.h"
#include "run/base_beside.h"
#include "run/new_words.h"
#include "run/opened_model.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

Result<std::string> RecordOf(const OpenedModel& model, const std::vector<AddedToken>& tokens) {
  TEMPER_ASSIGN_OR_RETURN(const std::string digest, model.Digest());
  Json record = {{"base", model.folder()}, {"base_digest", digest}, {"tokens", Json::array()}};
  for (const AddedToken& t : tokens) {
    record["tokens"].push_back({{"id", t.id},
                                {"content", t.content},
                                {"special", t.special},
                                {"normalized", t.normalized},
                                {"lstrip", t.lstrip},
                                {"rstrip", t.rstrip},
                                {"single_word", t.single_word}});
  }
  return record.dump(1) + "\n";
}

// As transformers' add_tokens.
Result<std::vector<AddedToken>> WithoutKnown(const OpenedModel& model, std::vector<AddedToken> tokens) {
  TEMPER_ASSIGN_OR_RETURN(const auto tokenizer, model.LoadTokenizer());
  std::vector<std::string> known;
  std::erase_if(tokens, [&](const AddedToken& token) {
    const auto id = tokenizer->TokenToId(token.content);
    if (id) known.push_back(fmt::format("{} ({})", Quoted(token.content), *id));
    return id.has_value();
  });
  if (!known.empty()) LogInfo(fmt::format("new tokens  the model has {}: used as they are", fmt::join(known, ", ")));
  return tokens;
}

}  // namespace

Result<GrownModel> GrowModel(Env& env, const GrownModelRequest& request) {
  TEMPER_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadNewTokens(env, request.tokens));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(env, {.model = request.model}));
  if (!model.adapter()) {
    TEMPER_ASSIGN_OR_RETURN(tokens, WithoutKnown(model, std::move(tokens)));
  }
  if (tokens.empty()) return GrownModel{.folder = model.folder()};
  TEMPER_ASSIGN_OR_RETURN(ExportSpec spec, model.ExportPlan());
  TEMPER_RETURN_IF_ERROR(AddNewWords(env, model, request.tokens, &tokens, &spec));
  TEMPER_RETURN_IF_ERROR(model.OpenWeights());
  TEMPER_ASSIGN_OR_RETURN(const std::string record, RecordOf(model, tokens));
  const BaseBeside beside(env, request.output_dir, "add_tokens", record);
  GrownModel grown{
      .folder = beside.folder(), .rows = RowsToTrain(model.model(), tokens), .tables = TablesOfWords(model.model())};
  TEMPER_ASSIGN_OR_RETURN(const bool there, beside.IsThere());
  if (there) return grown;
  if (!request.makes) return GrownModel{.rows = grown.rows, .tables = grown.tables};
  TEMPER_RETURN_IF_ERROR(beside.Begin());
  spec.output_dir = grown.folder;
  spec.overwrite = true;
  TransferProgress verifying("verify"), exporting("add rows for new tokens");
  TEMPER_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportModel(env, spec, exporting.Callback(), verifying.Callback()));
  TEMPER_RETURN_IF_ERROR(CheckNewWords(env, grown.folder, tokens));
  TEMPER_RETURN_IF_ERROR(beside.Finish());
  const std::string ids = tokens.size() == 1 ? fmt::format("number {}", tokens[0].id)
                                             : fmt::format("numbers {} to {}", tokens.front().id, tokens.back().id);
  LogInfo(fmt::format("new tokens  {}, {}{}; {} is the model with their rows, {}", tokens.size(), ids,
                      spec.words > 0 ? "" : ", for which the tables had free rows", grown.folder,
                      ToString(report.bytes)));
  return grown;
}

}  // namespace temper
