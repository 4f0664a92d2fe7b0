#include "run/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/quantity.h"
#include "data/records.h"
#include "format/hub_cache.h"
#include "run/chat_context.h"

namespace temper {

DataRequest TrainingData(const RunConfig& config) {
  return {.sources = config.data.data,
          .max_seq_len = *config.data.max_seq_len,
          .train_on_prompt = config.data.train_on_prompt,
          .skip_bad_rows = config.data.skip_bad_rows,
          .template_date = config.data.template_date,
          .chat_template_kwargs = config.data.chat_template_kwargs,
          .threads = static_cast<int>(*config.machine.threads)};
}

Result<std::vector<DataInput>> FindInputs(Env& env, const DataSources& sources, const char* option) {
  std::vector<DataInput> inputs;
  for (const DataSource& source : sources) {
    TEMPER_ASSIGN_OR_RETURN(std::string path, FindDataFile(env, source.path, option));
    if (source.max_samples && IsTextFile(path)) {
      return InvalidArgument(
          fmt::format("--{} {}: max_samples counts rows, and a text file is one document: remove it", option, path));
    }
    if (!env.IsFile(path) && !env.IsFolder(path) && path.find(',') != std::string::npos) {
      return NotFound(
          fmt::format("--{} {}: there is no such file; for several files repeat --{}", option, path, option));
    }
    inputs.push_back({.path = std::move(path)});
    if (source.max_samples) inputs.back().max_rows = *source.max_samples;
  }
  return inputs;
}

std::vector<SamplePasses> PassesOf(const Dataset& dataset, const DataSources& sources) {
  if (std::all_of(sources.begin(), sources.end(), [](const DataSource& s) { return s.passes == 1; })) return {};
  std::vector<SamplePasses> passes;
  for (size_t i = 0; i < sources.size(); ++i) passes.push_back({dataset.files[i].first_sample, sources[i].passes});
  return passes;
}

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request) {
  RunData data;
  TEMPER_ASSIGN_OR_RETURN(data.tokenizer, model.LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(data.chat_template, model.LoadChatTemplate());
  const int64_t vocab = model.model().facts().vocab;
  if (data.tokenizer->vocab_size() > vocab) {
    LogWarning(
        fmt::format("{}: the tokenizer has {} tokens, but the model has embeddings for {}: rows with other tokens "
                    "are errors",
                    model.folder(), data.tokenizer->vocab_size(), vocab));
  }
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
  TEMPER_ASSIGN_OR_RETURN(const auto inputs, FindInputs(env, request.sources, request.option));
  TEMPER_ASSIGN_OR_RETURN(data.dataset, LoadDataset(env, inputs, *data.tokenizer,
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

namespace {

// "; 0.5 passes an epoch, 30.0 % of the tokens": of each of several sources.
std::vector<std::string> Shares(const Dataset& dataset, const DataSources& sources) {
  std::vector<std::string> texts(sources.size());
  if (sources.size() < 2) return texts;
  std::vector<double> tokens;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t end = i + 1 < sources.size() ? dataset.files[i + 1].first_sample : dataset.store.size();
    int64_t sum = 0;
    for (int64_t s = dataset.files[i].first_sample; s < end; ++s) sum += dataset.store.length(s);
    tokens.push_back(sources[i].passes * static_cast<double>(sum));
  }
  const double all = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const bool draws = !PassesOf(dataset, sources).empty();
  for (size_t i = 0; i < sources.size(); ++i) {
    const double passes = sources[i].passes;
    texts[i] = fmt::format("; {}{:.1f} % of the tokens",
                           draws ? fmt::format("{} {} an epoch, ", passes, passes == 1 ? "pass" : "passes") : "",
                           100 * tokens[i] / std::max(all, 1.0));
  }
  return texts;
}

}  // namespace

void DescribeData(const Dataset& dataset, const DataSources& sources, int64_t max_seq_len, int64_t positions) {
  const std::vector<std::string> shares = Shares(dataset, sources);
  for (size_t i = 0; i < dataset.files.size(); ++i) {
    const DataFile& file = dataset.files[i];
    LogInfo(fmt::format("data        {}: {} of {} (detected at {}){}", file.path, Counted(file.rows, "row"),
                        FormatName(file.format), file.format_place, shares[i]));
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
  if (s.empty_answers > 0)
    LogWarning(
        fmt::format("{} with no text: the model learns to answer nothing there; remove these rows, or give "
                    "these messages \"weight\": 0",
                    Counted(s.empty_answers, "answer")));
  if (s.samples > 0 && s.stopping_samples == 0)
    LogWarning("no sample ends with a supervised end token: the model will not learn to stop");
}

}  // namespace temper
