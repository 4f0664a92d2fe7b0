#include "run/new_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/companion_files.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/new_tokens.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "graph/row_list.h"
#include "model/words_key.h"

namespace temper {

Status AddNewWords(Env& env, const OpenedModel& model, const std::string& where_given, std::vector<AddedToken>* tokens,
                   ExportSpec* spec) {
  if (model.adapter()) {
    return InvalidArgument(
        fmt::format("add_tokens adds rows to a model, and {} is an adapter: add them to its base before training, or "
                    "export it first and add them to the result",
                    model.source().adapter_folder));
  }
  TEMPER_ASSIGN_OR_RETURN(const auto tokenizer, model.LoadTokenizer());
  TEMPER_RETURN_IF_ERROR(NumberNewTokens(*tokenizer, where_given, tokens));
  std::map<std::string, std::string> replaced;
  for (const auto& [name, text] : spec->replaced) {
    if (text) replaced[name] = *text;
  }
  TEMPER_ASSIGN_OR_RETURN(auto files, FilesWithTokens(env, model.folder(), replaced, *tokens));
  for (auto& [name, text] : files) spec->replaced[name] = std::move(text);
  const ModelFacts& facts = model.model().facts();
  if (tokens->back().id < facts.vocab) return OkStatus();  // free rows
  const LinearModule& head = model.model().modules().back();
  const std::string bias = head.path + ".bias";
  const WeightDeclaration* table = nullptr;
  for (const WeightDeclaration& w : model.model().weights()) {
    const bool of_words = !w.labels.empty() && w.labels[0] == DimLabel::kVocab;
    if (!of_words || (facts.classes > 0 && w.name == head.weights.front())) continue;
    const bool known = table == nullptr || w.name == head.weights.front() || w.name == bias;
    if (!known || w.shape[0] != facts.vocab || w.source.tensors().size() != 1 || w.source.transposed()) {
      return Unsupported(
          fmt::format("add_tokens: {} has {}, a table of words for which rows are not made", model.folder(), w.name));
    }
    if (table == nullptr) table = &w;
    spec->tables.push_back(w.source.tensors().front().name);
  }
  spec->words = tokens->back().id + 1;
  const std::string where = JoinPath(model.folder(), kModelConfigFile);
  std::string text;
  if (spec->config) {
    text = *spec->config;
  } else {
    TEMPER_ASSIGN_OR_RETURN(text, ReadTextFile(env, where, MiB(64)));
  }
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson config, ParseOrderedPythonJson(text, where));
  TEMPER_ASSIGN_OR_RETURN(spec->words_key, WordsKey(config, facts.vocab, where));
  return OkStatus();
}

Status CheckNewWords(Env& env, const std::string& folder, const std::vector<AddedToken>& tokens) {
  TEMPER_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(env, folder));
  for (const AddedToken& token : tokens) {
    TEMPER_ASSIGN_OR_RETURN(const auto ids, tokenizer->Encode(token.content, {.add_special = false}));
    if (std::count(ids.begin(), ids.end(), token.id) == 1) continue;
    return Unsupported(
        fmt::format("{}: the tokenizer does not read {} as the token {} that it was given: its text is "
                    "changed before tokens are searched. Try an entry with normalized: true",
                    folder, Quoted(token.content), token.id));
  }
  return OkStatus();
}

std::vector<std::string> TablesOfWords(const Model& model) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const WeightDeclaration& w : model.weights()) {
    if (w.labels.empty() || w.labels[0] != DimLabel::kVocab) continue;
    names.push_back(last(w.name.substr(0, w.name.rfind('.'))));
    break;
  }
  if (model.facts().classes == 0 && !model.facts().tied) names.push_back(last(model.modules().back().path));
  return names;
}

std::string RowsToTrain(const Model& model, const std::vector<AddedToken>& tokens) {
  std::vector<int64_t> rows;
  for (const AddedToken& token : tokens) rows.push_back(token.id);
  const std::string list = PrintRowList(rows);
  const std::vector<std::string> tables = TablesOfWords(model);
  return tables.size() < 2 ? list : fmt::format("{{{}: '{}', {}: '{}'}}", tables[0], list, tables[1], list);
}

}  // namespace temper
