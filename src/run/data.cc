#include "run/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/quantity.h"
#include "data/template_tokens.h"
#include "format/hub_cache.h"
#include "run/chat_context.h"

namespace temper {
DataRequest TrainingData(const RunConfig& config) {
  return {.files = {config.data.data},
          .max_seq_len = *config.data.max_seq_len,
          .train_on_prompt = config.data.train_on_prompt,
          .skip_bad_rows = config.data.skip_bad_rows,
          .template_date = config.data.template_date,
          .chat_template_kwargs = config.data.chat_template_kwargs,
          .threads = static_cast<int>(*config.machine.threads)};
}

namespace {

// The markers of a template that the model was not made for may be no tokens of its tokenizer.
void DescribeTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::vector<std::string> missing = MarkersWithoutToken(chat_template, tokenizer);
  if (missing.empty()) return;
  const auto end = TurnEndToken(chat_template, tokenizer);
  LogWarning(fmt::format(
      "{}: the tokenizer has no token {}, and reads {} as text{}", chat_template.where(), fmt::join(missing, ", "),
      missing.size() == 1 ? "it" : "them",
      end ? "" : ", also where a turn ends; alpaca and zephyr end turns with the tokenizer's own end token"));
}

}  // namespace

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request) {
  RunData data;
  TEMPER_ASSIGN_OR_RETURN(data.tokenizer, model.LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(data.chat_template, model.LoadChatTemplate(data.tokenizer.get()));
  const int64_t vocab = model.model().facts().vocab;
  if (data.tokenizer->vocab_size() > vocab) {
    LogWarning(
        fmt::format("{}: the tokenizer has {} tokens, but the model has embeddings for {}: rows with other tokens "
                    "are errors",
                    model.folder(), data.tokenizer->vocab_size(), vocab));
  }
  // Once a run: its evaluation data has the same.
  if (model.added_template() && std::string_view(request.option) == "data")
    DescribeTemplate(*data.chat_template, *data.tokenizer);
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context,
                          ChatContext::Create(request.template_date, request.chat_template_kwargs));
  const DatasetOptions options{.tokenize = {.max_seq_len = request.max_seq_len,
                                            .train_on_prompt = request.train_on_prompt,
                                            // As in `temper chat`.
                                            .instructions_as_conversations = data.chat_template.has_value(),
                                            .chat = context.options(),
                                            .vocab_size = vocab},
                               .skip_bad_rows = request.skip_bad_rows,
                               .threads = request.threads};
  std::vector<std::string> paths;
  for (const std::string& file : request.files) {
    TEMPER_ASSIGN_OR_RETURN(paths.emplace_back(), FindDataFile(env, file, request.option));
  }
  TEMPER_ASSIGN_OR_RETURN(data.dataset, LoadDataset(env, paths, *data.tokenizer,
                                                    data.chat_template ? &*data.chat_template : nullptr, options));
  return data;
}

namespace {

// Sends the first rank's `dataset` to all.
Status Share(const Ranks& ranks, Dataset* dataset) {
  const auto array = [&]<class T>(std::vector<T>& values) -> Status {
    auto size = static_cast<uint64_t>(values.size());
    Communicator& communicator = *ranks.communicator();
    TEMPER_RETURN_IF_ERROR(communicator.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0));
    values.resize(size);
    return size == 0 ? OkStatus() : communicator.Broadcast(std::as_writable_bytes(std::span(values)), 0);
  };
  TEMPER_RETURN_IF_ERROR(dataset->store.ForArrays(array));
  TEMPER_RETURN_IF_ERROR(array(dataset->lines));
  // The rows of samples, for messages.
  std::vector<int64_t> firsts;
  for (const DataFile& file : dataset->files) firsts.push_back(file.first_sample);
  TEMPER_RETURN_IF_ERROR(array(firsts));
  dataset->files.resize(firsts.size());
  for (size_t i = 0; i < firsts.size(); ++i) {
    DataFile& file = dataset->files[i];
    file.first_sample = firsts[i];
    TEMPER_ASSIGN_OR_RETURN(file.path, ranks.FromFirst(file.path));
  }
  return OkStatus();
}

}  // namespace

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks) {
  if (ranks.alone()) return LoadRunData(env, model, request);
  Result<RunData> data = RunData();
  if (ranks.first()) {
    DataRequest for_all = request;
    for_all.threads *= ranks.communicator()->host_ranks();
    data = LoadRunData(env, model, for_all);
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(data.status()));
  TEMPER_RETURN_IF_ERROR(Share(ranks, &data->dataset));
  return data;
}

void DescribeData(const Dataset& dataset, int64_t max_seq_len, int64_t positions) {
  for (const DataFile& file : dataset.files) {
    LogInfo(fmt::format("data        {}: {} of {} (detected at {})", file.path, Counted(file.rows, "row"),
                        FormatName(file.format), file.format_place));
  }
  const DataStatistics& s = dataset.statistics;
  const auto percent = [](int64_t part, int64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  };
  LogInfo(fmt::format("            {}, {}, {} supervised ({:.1f} %), longest row {}", Counted(s.samples, "sample"),
                      Counted(s.tokens, "token"), s.supervised, percent(s.supervised, s.tokens), s.longest_row));
  if (s.weighted > 0) {
    LogInfo(fmt::format("            {} with a weight, {} to {}", Counted(s.weighted, "supervised token"),
                        WeightValue(s.least_weight), WeightValue(s.largest_weight)));
  }
  if (s.bad_rows > 0)
    LogWarning(fmt::format("{} skipped ({:.2f} %); the first: {}", Counted(s.bad_rows, "bad row"),
                           percent(s.bad_rows, s.rows), s.problems.empty() ? "" : s.problems.front()));
  if (s.cut_rows > 0)
    LogWarning(
        fmt::format("cut at the end: {} ({:.2f} %) longer than max_seq_len, {} lost; {}", Counted(s.cut_rows, "row"),
                    percent(s.cut_rows, s.rows), Counted(s.cut_tokens, "token"),
                    max_seq_len < positions
                        ? fmt::format("raise --max_seq_len (the model has {} positions), or split them", positions)
                        : fmt::format("split them: the model has {} positions", positions)));
  if (s.dropped_rows > 0)
    LogWarning(fmt::format("dropped: {} ({:.2f} %) without supervised tokens (within max_seq_len)",
                           Counted(s.dropped_rows, "row"), percent(s.dropped_rows, s.rows)));
  const auto warn = [](const char* what, const Finding& finding, const char* noun, const char* which) {
    if (finding.count == 0) return;
    LogWarning(fmt::format("{}: {}{}; the first: {}", what, Counted(finding.count, noun), which, finding.first));
  };
  warn("not trained on", s.empty_answers, "empty answer", "");
  warn("not trained on", s.unprinted_turns, "turn", " whose tool calls or reasoning the chat template leaves out");
  warn("tools left out", s.unprinted_tools, "row", ", of whose tools or tool calls the chat template prints nothing");
  warn("without an end token", s.open_turns, "turn", ", which the chat template ends with text");
  if (s.samples > 0 && s.stopping_samples == 0)
    LogWarning("no sample ends with a supervised end token: the model will not learn to stop");
}

}  // namespace temper
