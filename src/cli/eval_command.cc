// temper eval: mean loss and perplexity of a model on a data file, on stdout.
#include <fmt/core.h>

#include <cmath>
#include <cstdio>

#include "api/evaluation.h"
#include "cli/command_options.h"
#include "cli/commands.h"

namespace temper {
namespace {

constexpr char kEvalUsage[] =
    "usage: temper eval MODEL|RUN.yaml --data FILE [--option value ...]\n\n"
    "Prints {\"eval_loss\", \"perplexity\", \"token_accuracy\", \"tokens\", \"samples\"} on stdout. Of a model that "
    "judges texts:\n{\"eval_loss\", \"accuracy\", \"f1_macro\", \"samples\"}, of two classes also \"f1_binary\", that "
    "of the "
    "second;\nof a reward model, on pairs of answers: {\"eval_loss\", \"rewards/chosen\", \"rewards/rejected\", "
    "\"accuracy\", \"margin\", \"samples\"};\nwith --task dpo, simpo, orpo or kto, on preferences: {\"eval_loss\", "
    "\"rewards/chosen\", \"rewards/rejected\", \"rewards/margins\", ..., \"samples\"}.\n"
    "The file of a run gives what it has trained (its output_dir), its eval_data, and its options.\n";

Result<int> Eval(const Arguments& arguments) {
  EvaluationSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kEvalCommand));
  if (!line) return 0;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.model.choice.model, kEvalCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(PathsOf(settings.data), "data"));
  TEMPER_ASSIGN_OR_RETURN(const Evaluation evaluation, RunEvaluation(std::move(settings)));
  const EvaluationReport& report = evaluation.report;
  std::string text = fmt::format("{{\"eval_loss\": {}", report.loss);
  if (evaluation.of_words) {
    // JSON has no infinity, and exp overflows for a loss above 709.
    const double perplexity = std::exp(report.loss);
    text += std::isfinite(perplexity) ? fmt::format(", \"perplexity\": {}", perplexity) : ", \"perplexity\": null";
  }
  for (const NamedNumber& number : evaluation.reports) text += fmt::format(", \"{}\": {}", number.name, number.value);
  if (evaluation.of_words) text += fmt::format(", \"tokens\": {}", report.tokens);
  std::fputs(fmt::format("{}, \"samples\": {}}}\n", text, evaluation.samples).c_str(), stdout);
  return 0;
}

}  // namespace

const Command kEvalCommand = {.name = "eval",
                              .summary = "loss and perplexity on a data file",
                              .usage = kEvalUsage,
                              .first_word = FirstWord::kModelToMeasure,
                              .words = "",
                              .run = Eval,
                              .read_options = ReadOptionsOf<EvaluationSettings>};

}  // namespace temper
