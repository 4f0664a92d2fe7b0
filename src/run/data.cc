#include "run/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "data/records.h"
#include "data/sampler.h"
#include "data/token_cache.h"
#include "data/tokenizer/no_tokenizer.h"
#include "format/data_file_name.h"
#include "run/chat_context.h"
#include "run/data_report.h"
#include "run/shared_tokens.h"
#include "run/token_key.h"
#include "train/transfer_progress.h"

namespace temper {

std::string DataFingerprint(const Dataset& dataset, const DataSources& sources) {
  std::string text = fmt::format("xxh3:{:016x}", dataset.store.Fingerprint());
  for (const SamplePasses& set : PassesOf(dataset, sources)) text += fmt::format(",{}", set.first_sample);
  return text;
}

namespace {

// Whether all rows are ready-made tokens, as their first ones say.
bool AreTokens(Env& env, const std::vector<DataInput>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](const DataInput& input) {
    if (KindOfDataFile(input.path) == DataFileKind::kText) return false;
    if (!FactsOf(input.use).may_be_tokens) return false;
    const auto rows = RecordReader::Open(env, input.path, input.reading, input.use);
    return rows.ok() && (*rows)->format() == RecordFormat::kTokens;
  });
}

Result<Template> ReadRowTemplate(Env& env, const std::string& path) {
  if (IsTemplateText(path)) return Template::Parse(path, "row_template");
  const auto source = ReadTextFile(env, path, kMaxChatTemplate);
  if (!source.ok()) return source.status().WithContext("--row_template");
  return Template::Parse(*source, path);
}

// The model's tokenizer; if it has none, and the data needs none, one that encodes nothing.
Result<std::unique_ptr<Tokenizer>> TokenizerFor(Env& env, const OpenedModel& model,
                                                const std::vector<DataInput>& inputs) {
  auto tokenizer = model.LoadTokenizer();
  if (tokenizer.status().code() != StatusCode::kNotFound || !AreTokens(env, inputs)) return tokenizer;
  return std::unique_ptr<Tokenizer>(std::make_unique<NoTokenizer>(tokenizer.status()));
}

Result<std::vector<FileVersion>> VersionsOf(Env& env, const std::vector<DataInput>& inputs) {
  std::vector<FileVersion> out;
  for (const DataInput& input : inputs) {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(input.path));
    out.push_back(file->version());
  }
  return out;
}

// A file that another program has written may have labels of no class.
Result<Dataset> WithKnownLabels(Dataset dataset, const OpenedModel& model) {
  if (dataset.store.largest_label() < std::max<int64_t>(model.model().facts().classes, 0) ||
      dataset.store.largest_label() < 0)
    return dataset;
  return Corrupt(fmt::format("the token file has the label {}, of {} classes", dataset.store.largest_label(),
                             model.model().facts().classes));
}

// Of the request, with the tokens written to a file or found in one.
Result<RunData> Load(Env& env, const OpenedModel& model, const DataRequest& request, TokenFile* kept) {
  RunData data;
  const RowFacts& rows = FactsOf(request.use);
  const bool by_template = rows.by_template;
  std::optional<Template> row_template;
  if (by_template) {
    TEMPER_ASSIGN_OR_RETURN(row_template, ReadRowTemplate(env, request.row_template));
  }
  TEMPER_ASSIGN_OR_RETURN(const auto inputs,
                          FindInputs(env, request.sources, request.reading, request.use, request.option));
  TEMPER_ASSIGN_OR_RETURN(data.tokenizer, TokenizerFor(env, model, inputs));
  TEMPER_ASSIGN_OR_RETURN(data.chat_template, model.LoadChatTemplate(data.tokenizer.get()));
  const int64_t vocab = model.model().facts().vocab;
  const std::optional<ClassHead>& head = model.class_head();
  const bool has_labels = rows.gives == Section::kLabel;
  TEMPER_CHECK(!has_labels || head) << "labels without classes";
  if (data.tokenizer->vocab_size() > vocab) {
    LogWarning(
        fmt::format("{}: the tokenizer has {} tokens, but the model has embeddings for {}: rows with other tokens "
                    "are errors",
                    model.folder(), data.tokenizer->vocab_size(), vocab));
  }
  // Once a run: its evaluation data has the same.
  if (!by_template && model.added_templates() && std::string_view(request.option) == "data")
    DescribeTemplate(*data.chat_template, *data.tokenizer);
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context,
                          ChatContext::Create(request.template_date, request.chat_template_kwargs));
  ChatOptions chat = context.options();
  chat.one_text = request.reasoning_turns == ReasoningTurns::kLast || rows.one_text;
  std::optional<TransferProgress> progress;  // since tokenizing began
  const DatasetOptions options{
      .tokenize = {.max_seq_len = request.max_seq_len,
                   .train_on_prompt = request.train_on_prompt,
                   // As in `temper chat`.
                   .instructions_as_conversations = !by_template && data.chat_template.has_value(),
                   .row_template = row_template ? &*row_template : nullptr,
                   .chat = chat,
                   .long_rows = request.long_rows,
                   .use = request.use,
                   .classes = has_labels ? &head->classes : nullptr,
                   .pad = head ? head->pad : std::nullopt,
                   .vocab_size = vocab},
      .skip_bad_rows = request.skip_bad_rows,
      .threads = request.threads,
      .progress =
          [&](Bytes done, Bytes total, int64_t rows) {
            if (!progress) progress.emplace("tokenize");
            progress->Update(done, total, rows);
          },
      .visit = request.visit};
  kept->paths = InputPaths(inputs);
  const std::vector<std::string>& paths = kept->paths;
  const ChatTemplate* const chat_template = data.chat_template && !by_template ? &*data.chat_template : nullptr;
  if (request.cache.empty()) {
    TEMPER_ASSIGN_OR_RETURN(data.dataset, LoadDataset(env, inputs, *data.tokenizer, chat_template, options));
    return data;
  }
  TEMPER_ASSIGN_OR_RETURN(const auto versions, VersionsOf(env, inputs));
  TEMPER_ASSIGN_OR_RETURN(kept->key, TokenKey(env, model, request, options, chat_template, inputs));
  const TokenCache cache(env, request.cache, kept->key);
  data.token_file = cache.path();
  auto found = cache.Open(TokenStore::Check::kAll, vocab, paths);
  if (found.ok()) found = WithKnownLabels(*std::move(found), model);
  if (found.ok()) {
    LogInfo(fmt::format("tokens      from {}: data, tokenizer and settings are the same", cache.path()));
    data.dataset = *std::move(found);
    return data;
  }
  if (found.status().code() == StatusCode::kCorrupt) LogWarning(found.status().message() + "; it is made again");
  TEMPER_RETURN_IF_ERROR(cache.Make([&](std::unique_ptr<WritableFile> file) -> Status {
    TokenWriter writer(std::move(file), options.tokenize.sections());
    TEMPER_RETURN_IF_ERROR(WriteDataset(env, inputs, *data.tokenizer, chat_template, options, kept->key, writer));
    TEMPER_ASSIGN_OR_RETURN(const auto now, VersionsOf(env, inputs));
    if (now == versions) return OkStatus();
    return InvalidArgument(fmt::format("{} changed while it was read: start again", fmt::join(paths, " or ")));
  }));
  TEMPER_ASSIGN_OR_RETURN(data.dataset, cache.Open(TokenStore::Check::kBorders, vocab, paths));
  LogInfo(fmt::format("tokens      kept in {} ({})", cache.path(), ToString(data.dataset.store.bytes())));
  return data;
}

}  // namespace

Status CheckTokenizer(Env& env, const OpenedModel& model, const RunConfig& config) {
  const RunConfig::Data& data = config.data;
  if (!data.row_template.empty()) TEMPER_RETURN_IF_ERROR(ReadRowTemplate(env, data.row_template).status());
  std::vector<DataInput> all;
  for (const auto& [option, sources] : {std::pair{"data", &data.data}, {"eval_data", &data.eval_data}}) {
    TEMPER_ASSIGN_OR_RETURN(const auto inputs, FindInputs(env, *sources, data.reading, RowUseOf(config), option));
    all.insert(all.end(), inputs.begin(), inputs.end());
  }
  return TokenizerFor(env, model, all).status();
}

Result<PackedRows> PackedRowsOf(const RunConfig& config, int64_t documents, int64_t rows, int64_t rows_per_step) {
  if (!config.data.packing || config.length.max_steps || rows == 0) return PackedRows();
  TEMPER_ASSIGN_OR_RETURN(const StepCount steps, StepsOf(documents, rows_per_step, config.length.num_train_epochs));
  return PackedRows{.per_row = static_cast<double>(documents) / static_cast<double>(rows),
                    .steps_without = steps.total};
}

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request) {
  TokenFile kept;
  return Load(env, model, request, &kept);
}

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks) {
  if (ranks.alone()) return LoadRunData(env, model, request);
  TEMPER_CHECK(!request.cache.empty()) << "ranks share a file";
  Result<RunData> data = RunData();
  TokenFile kept;
  if (ranks.first()) {
    DataRequest for_all = request;
    for_all.threads *= ranks.communicator()->host_ranks();
    data = Load(env, model, for_all, &kept);
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(data.status()));
  TEMPER_ASSIGN_OR_RETURN(kept, TokenFileOfFirst(kept, request.sources.size(), ranks));
  const TokenCache cache(env, request.cache, kept.key);
  data->token_file = cache.path();
  TEMPER_ASSIGN_OR_RETURN(Dataset opened, OpenOnOtherRanks(cache, kept.paths, model.model().facts().vocab, ranks));
  TEMPER_ASSIGN_OR_RETURN(opened, WithKnownLabels(std::move(opened), model));
  if (!ranks.first()) data->dataset = std::move(opened);
  return data;
}

}  // namespace temper
