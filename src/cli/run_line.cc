#include "cli/run_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "base/progress_text.h"
#include "base/quantity.h"
#include "config/command_line.h"
#include "config/foreign_names.h"
#include "config/run_options.h"

namespace temper {
namespace {

// --mesh changes single axes of a file's mesh. Says which others stay, to a user who expects it to replace them all.
void NoteKeptAxes(const CommandLine& line, const RunConfig& config) {
  if (line.positional.empty()) return;
  const RunConfig::Mesh& m = config.mesh;
  const std::pair<const char*, int64_t> axes[] = {{"pp", m.pp},
                                                  {"dp", m.dp.value_or(1)},
                                                  {"fsdp", m.fsdp.value_or(1)},
                                                  {"cp", m.cp.value_or(1)},
                                                  {"ep", m.ep.value_or(1)},
                                                  {"tp", m.tp.value_or(1)}};
  bool changed = false;
  std::vector<std::string> kept, without;
  int64_t ranks = 1;
  for (const auto& [name, size] : axes) {
    ranks *= size;
    if (line.Sets(fmt::format("mesh.{}", name))) {
      changed = true;
    } else if (size > 1) {
      kept.push_back(fmt::format("{}={}", name, size));
      without.push_back(fmt::format("{}=1", name));
    }
  }
  if (!changed || kept.empty()) return;
  LogInfo(fmt::format("mesh        {} of {} still counts: {} in all; for a mesh without it add --mesh {}",
                      fmt::join(kept, ", "), line.positional[0], Counted(ranks, "rank"), fmt::join(without, ",")));
}

// Of resume and overwrite, which exclude each other, the command line has the last word over the file: recipes of other
// tools have overwrite in every file, and who adds --resume wants what is there.
void LetTheLineWin(const CommandLine& line, RunConfig& config) {
  RunConfig::Output& o = config.output;
  if (!o.resume || !o.overwrite || line.positional.empty()) return;
  const bool resume = line.Sets("resume"), overwrite = line.Sets("overwrite");
  if (resume == overwrite) return;
  if (resume) o.overwrite = false;
  if (overwrite) o.resume.reset();
  LogInfo(fmt::format("{:<12}{} of {} does not count: --{} is given", resume ? "resume" : "overwrite",
                      resume ? "overwrite" : "resume", line.positional[0], resume ? "resume" : "overwrite"));
}

}  // namespace

Result<std::optional<RunRequest>> ReadRunLine(const Arguments& arguments, Purpose purpose, const char* usage,
                                              bool prints_help, std::vector<OptionGroup> more) {
  RunRequest request;
  std::vector<OptionGroup> groups = RunOptionGroups(request.config);
  for (OptionGroup& group : more) groups.push_back(std::move(group));
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_ASSIGN_OR_RETURN(const CommandLine line, ReadCommandLine(arguments, options));
  if (line.help) {
    if (prints_help)
      std::fputs(HelpText(usage, options, ColumnsOf(STDOUT_FILENO).value_or(kHelpWidth)).c_str(), stdout);
    return std::optional<RunRequest>();
  }
  TEMPER_RETURN_IF_ERROR(ReadOptions(PosixEnv(), line, options));
  LetTheLineWin(line, request.config);
  TEMPER_RETURN_IF_ERROR(Validate(request.config, purpose));
  NoteKeptAxes(line, request.config);
  if (!line.positional.empty()) request.file = line.positional[0];
  return std::optional(std::move(request));
}

}  // namespace temper
