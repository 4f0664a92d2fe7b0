// temper data preview: shows a data file as the model is trained
// on it: supervised text, masked text, borders of packed samples.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/team.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "config/data_option.h"
#include "config/reading_options.h"
#include "config/run_options.h"
#include "config/task_options.h"
#include "config/validate.h"
#include "data/label_search.h"
#include "data/packing.h"
#include "data/preview.h"
#include "run/data.h"
#include "run/data_report.h"
#include "run/expand_sources.h"
#include "run/machine.h"
#include "run/model_options.h"
#include "run/reading_of_run.h"
#include "settings/run_config.h"

namespace temper {
namespace {

constexpr char kDataUsage[] =
    "usage: temper data preview MODEL|RUN.yaml --data FILE [--option value ...]\n\n"
    "Shows samples as the model is trained on them: text that counts toward the loss is highlighted, the rest is "
    "dim.\nThe file of a run gives the model, the data and all options that a run has, too.\n";

struct PreviewSettings {
  ModelChoice choice;
  DataSources sources;
  std::string split;
  RowReading reading;
  int64_t seed = 42;
  std::optional<int64_t> samples, max_seq_len;
  bool train_on_prompt = false, skip_bad_rows = false, packed = false, tokens = false, json = false;
  JsonObject kwargs;
  std::string row_template;
  ReasoningTurns reasoning_turns = ReasoningTurns::kAll;
  LongRows long_rows = LongRows::kSplit;
  const ObjectiveRule* task = &Sft();

  std::vector<OptionGroup> Groups() {
    return {
        {"Preview",
         {{.name = "model", .target = &choice.model, .help = "model whose tokenizer and chat template are used"},
          DataOption(
              "data", sources,
              "file to show, a folder or a pattern, or name of a data set in the Hugging Face cache; as in train: "
              "repeated for several, "
              "with :passes=P,max_samples=N",
              /*has_passes=*/true),
          {.name = "split",
           .target = &split,
           .help = "train, test, ...: of a folder or a data set with several splits",
           .default_text = "train"},
          ColumnsOption(reading.columns),
          RolesOption(reading.roles),
          SeparatorOption(reading.separator),
          {.name = "samples",
           .target = &samples,
           .help = "number of samples (or packed rows) to show",
           .range = {.at_least = 1},
           .default_text = "2; with json: all"},
          {.name = "packed", .target = &packed, .help = "show packed rows of max_seq_len tokens instead of samples"},
          {.name = "tokens", .target = &tokens, .help = "show each token on a line: its place, id and text"},
          {.name = "json",
           .target = &json,
           .help = "print a line of JSON per sample: ids, labels (-100: masked), and the supervised text"},
          ChatTemplateOption(choice.chat_template),
          ChatTemplateKwargs(kwargs),
          RowTemplateOption(row_template),
          ReasoningTurnsOption(reasoning_turns),
          LongRowsOption(long_rows),
          TaskOption(task),
          {.name = "max_seq_len",
           .target = &max_seq_len,
           .help = "tokens of a row",
           .range = {.at_least = 2},
           .default_text = "2048, or the model's if that is less"},
          {.name = "seed", .target = &seed, .help = "of the packing"},
          {.name = "train_on_prompt", .target = &train_on_prompt, .help = "prompts count toward the loss, too"},
          {.name = "skip_bad_rows", .target = &skip_bad_rows, .help = "skip and count bad rows instead of stopping"}}}};
  }
};

Result<int> Preview(const Arguments& arguments) {
  if (arguments.empty() || (arguments[0] != "preview" && arguments[0] != "--help" && arguments[0] != "-h")) {
    return InvalidArgument("temper data has one subcommand: temper data preview MODEL --data FILE, or RUN.yaml");
  }
  PreviewSettings settings;
  const Arguments rest(arguments.begin() + (arguments[0] == "preview"), arguments.end());
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(rest, settings.Groups(), kDataCommand));
  if (!line) return 0;
  TEMPER_ASSIGN_OR_RETURN(settings.sources, ExpandSources(PosixEnv(), settings.sources, {.split = settings.split}));
  const auto& [choice, sources, split, reading, seed, samples, max_seq_len, train_on_prompt, skip_bad_rows, packed,
               tokens, json, kwargs, row_template, reasoning_turns, long_rows, task] = settings;
  TEMPER_RETURN_IF_ERROR(RequireModel(choice.model, kDataCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(PathsOf(sources), "data"));
  const RunConfig::Data given = {.data = sources,
                                 .reading = reading,
                                 .train_on_prompt = train_on_prompt,
                                 .chat_template = choice.chat_template,
                                 .chat_template_kwargs = kwargs,
                                 .row_template = row_template,
                                 .reasoning_turns = reasoning_turns,
                                 .long_rows = long_rows};
  TEMPER_RETURN_IF_ERROR(CheckRowTemplate(given));
  TEMPER_RETURN_IF_ERROR(CheckRows(*task, given));
  if (packed && json) return InvalidArgument("--json prints samples, not packed rows: leave out --packed");
  if (tokens && json) return InvalidArgument("--json prints the ids of all tokens: leave out --tokens");
  ModelChoice with_classes = choice;
  if (task->head == ObjectiveRule::Head::kReward) with_classes.classes = [] { return ClassNames{{"LABEL_0"}}; };
  if (task->head == ObjectiveRule::Head::kClasses) {
    with_classes.classes = [&settings]() -> Result<ClassNames> {
      TEMPER_ASSIGN_OR_RETURN(const auto inputs,
                              FindInputs(PosixEnv(), settings.sources, settings.reading, RowUse::kLabels, "data"));
      return FindClasses(PosixEnv(), inputs);
    };
  }
  TEMPER_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(PosixEnv(), with_classes));
  RowUse use = RowUseOf(*task, row_template);
  const bool by_format = !choice.chat_template.empty() || !kwargs.text.empty() || !(reading == RowReading());
  settings.reading = ReadingAsTrained(PosixEnv(), choice.model, sources, reading, use);
  if (!by_format && row_template.empty()) {
    settings.row_template = RowTemplateAsTrained(PosixEnv(), choice.model, sources, reading, use);
    use = RowUseOf(*task, row_template);
  }
  const int64_t row = max_seq_len.value_or(DefaultMaxSeqLen(model.model().facts().max_positions));
  std::map<int64_t, std::vector<std::string>> unknown;  // by sample: the text of its unknown tokens
  const auto keep_unknown = [&](int64_t sample, const Sample& made) {
    if (settings.tokens && !made.unknown.empty()) unknown[sample] = made.unknown;
  };
  TEMPER_ASSIGN_OR_RETURN(const RunData data, LoadRunData(PosixEnv(), model,
                                                          {.sources = sources,
                                                           .reading = reading,
                                                           .use = use,
                                                           .max_seq_len = row,
                                                           .train_on_prompt = train_on_prompt,
                                                           .skip_bad_rows = skip_bad_rows,
                                                           .template_date = Today(),
                                                           .chat_template_kwargs = kwargs,
                                                           .row_template = row_template,
                                                           .reasoning_turns = reasoning_turns,
                                                           .long_rows = long_rows,
                                                           .threads = AvailableProcessors(),
                                                           .visit = keep_unknown}));
  DescribeData(data.dataset, sources, row, model.model().facts().max_positions);
  const TokenStore& store = data.dataset.store;
  const PreviewOptions style{.colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr,
                             .tokens = tokens,
                             .unknown = &unknown,
                             .parts = task->parts,
                             .classes = model.class_head() ? &model.class_head()->classes : nullptr};
  if (json) {
    for (int64_t i = 0; i < std::min(samples.value_or(store.size()), store.size()); ++i) {
      std::fputs((SampleAsJson(store, i, data.dataset.PlaceOf(i), *data.tokenizer, style.classes) + "\n").c_str(),
                 stdout);
    }
    return 0;
  }
  constexpr int64_t kShown = 2;
  if (!packed) {
    for (int64_t i = 0; i < std::min(samples.value_or(kShown), store.size()); ++i) {
      std::fputs((PreviewSample(store, i, *data.tokenizer, style) + "\n").c_str(), stdout);
    }
    return 0;
  }
  std::vector<int32_t> all(static_cast<size_t>(store.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  const PackingOptions options{.max_seq_len = row, .passes = PassesOf(data.dataset, sources)};
  TEMPER_RETURN_IF_ERROR(CheckPasses(all, options.passes));
  Packing packing(store, all, options);
  packing.Pack(static_cast<uint64_t>(seed), 0);
  for (int64_t r = 0; r < std::min(samples.value_or(kShown), packing.rows()); ++r) {
    std::fputs((PreviewRow(store, packing.row(r), row, *data.tokenizer, style) + "\n").c_str(), stdout);
  }
  return 0;
}

}  // namespace

const Command kDataCommand = {.name = "data",
                              .summary = "preview: show a data file as the model is trained on it",
                              .usage = kDataUsage,
                              .first_word = FirstWord::kModelToTrain,
                              .words = "preview",
                              .run = Preview,
                              .read_options = ReadOptionsOf<PreviewSettings>};

}  // namespace temper
