// temper score: what a trained head says of each row of a data file, on stdout.
#include <cstdio>

#include "api/scoring.h"
#include "cli/command_options.h"
#include "cli/commands.h"

namespace temper {
namespace {

constexpr char kScoreUsage[] =
    "usage: temper score MODEL|RUN.yaml --data FILE [--option value ...]\n\n"
    "Prints a line of JSON per row: {\"line\", \"label\", \"probability\", \"probabilities\"}, or of a reward model\n"
    "{\"line\", \"reward\"}. Rows need no label.\n"
    "The file of a run gives what it has trained (its output_dir), its eval_data, and its options.\n";

Result<int> Score(const Arguments& arguments) {
  ScoringSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kScoreCommand));
  if (!line) return 0;
  TEMPER_RETURN_IF_ERROR(RequireModel(settings.model.choice.model, kScoreCommand));
  TEMPER_RETURN_IF_ERROR(RequireOption(PathsOf(settings.data), "data"));
  TEMPER_RETURN_IF_ERROR(
      RunScoring(std::move(settings), [](const std::string& text) { std::fputs((text + "\n").c_str(), stdout); }));
  return 0;
}

}  // namespace

const Command kScoreCommand = {.name = "score",
                               .summary = "what a trained head of classes says of the rows of a data file",
                               .usage = kScoreUsage,
                               .first_word = FirstWord::kModelToMeasure,
                               .words = "",
                               .run = Score,
                               .read_options = ReadOptionsOf<ScoringSettings>};

}  // namespace temper
