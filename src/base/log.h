// Messages for the person at the terminal. All go to stderr: stdout belongs to results (generated text, JSON).
// Thread-safe: each call writes one line with one write.
#pragma once

#include <string_view>

namespace temper {

void LogInfo(std::string_view line);
void LogWarning(std::string_view line);  // prefixed "warning: "
void LogError(std::string_view line);    // prefixed "error: "
// As LogInfo, for a literal, from a signal handler: takes no lock and no memory.
void LogInSignalHandler(std::string_view line);

// Makes this process one of several ranks: only the first logs everything, the others only errors. Errors begin with
// `name`, if it is not empty. Before another thread logs.
void SetLogRank(int rank, std::string_view name);

// Says whether an unfinished line (a bar that is redrawn) stands
// on the terminal: the next message, from any thread, replaces it.
void SetUnfinishedLine(bool stands);
bool UnfinishedLine();

// True where stderr is a terminal and NO_COLOR is unset: colours and live redrawing are welcome.
bool StderrIsRich();

}  // namespace temper
