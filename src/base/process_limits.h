// Limits that the user or the system puts on a process (ulimit). Reaching one is reported as an error with a remedy,
// not as a bug of Temper or by a raw signal.
#pragma once

#include <string>

namespace temper {

// Call it first in main. From then on, refused memory or threads end the process with an error and exit code 1, and a
// write beyond the file size limit fails with EFBIG instead of SIGXFSZ.
void ReportReachedLimits();

// The remedy for a system call's error that a limit may have caused, such as ". Raise it: ulimit -f unlimited"; empty
// for other errors.
std::string LimitRemedy(int error);

}  // namespace temper
