// Limits that the user or the system puts on a process (ulimit): running into one is an error with a remedy, neither a
// bug of Temper nor a raw signal.
#pragma once

#include <string>

namespace temper {

// From now on: memory or threads that the system refuses end the process with an error and exit code 1, and a file that
// grows over its limit fails with EFBIG (no SIGXFSZ). At the start of main.
void ReportReachedLimits();

// What to do about a system call's error where a limit may be its cause: ". Raise it: ulimit -f unlimited"; empty for
// other errors.
std::string LimitRemedy(int error);

}  // namespace temper
