// temper plan: a plan, from the command line to stdout.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "api/plan_run.h"
#include "base/progress_text.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/run_line.h"
#include "config/run_options.h"

namespace temper {
namespace {

constexpr char kPlanUsage[] =
    "usage: temper plan [RUN.yaml] --model FOLDER|NAME [--option value ...]\n\n"
    "Compiles the training step that `temper train` with the same options would run, and prints its memory by class\n"
    "at its peak, its arithmetic and its segments. With --cluster also its speed there, what limits it, and\n"
    "what would make it fit. Needs only config.json, and not even that for well-known models, which --model names.\n"
    "Where weights are there, it looks at their headers, too. Ends with exit code 1 if the run would be refused, or\n"
    "does not fit.\n";

struct PlanSettings {
  RunConfig run;
  PlanOptions options;

  std::vector<OptionGroup> Groups() {
    std::vector<OptionGroup> groups = RunOptionGroups(run);
    groups.push_back(options.Group());
    return groups;
  }
};

Result<int> PrintPlan(const Arguments& arguments) {
  PlanOptions options;
  TEMPER_ASSIGN_OR_RETURN(auto request,
                          ReadRunLine(arguments, Purpose::kPlan, kPlanUsage, /*prints_help=*/true, {options.Group()}));
  if (!request) return 0;
  const bool rich = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const PlanFace face{.print =
                          [](const std::string& text) {
                            std::fputs(text.c_str(), stdout);
                            std::fflush(stdout);
                          },
                      .explains_waiting = isatty(STDERR_FILENO) != 0,
                      .colours = rich,
                      .boxes = rich && LocaleIsUtf8()};
  TEMPER_ASSIGN_OR_RETURN(const PlanResult result, PlanRun(*std::move(request), options, face));
  return result.why_not.empty() ? 0 : 1;
}

}  // namespace

const Command kPlanCommand = {.name = "plan",
                              .summary = "memory and speed of a run, before it runs",
                              .usage = kPlanUsage,
                              .first_word = FirstWord::kYamlFile,
                              .words = "",
                              .run = PrintPlan,
                              .read_options = ReadOptionsOf<PlanSettings>};

}  // namespace temper
