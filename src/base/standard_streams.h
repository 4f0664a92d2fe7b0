// stdin, stdout and stderr: they may be closed when the program starts, and their readers may go away while it runs.
// To be called at the start of main, before any thread or file.
#pragma once

namespace temper {

// Opens the null device in place of each of descriptors 0 to 2 that is closed. Otherwise the next files would get these
// numbers, and log lines would go into them. Reading from stdin then ends at once; writing to stdout or stderr fails
// (EBADF), so that a lost result is still an error.
void OpenMissingStreams();

// For commands whose result is what they print: a reader of stdout that goes away (`| head`) ends the process as
// SIGPIPE does, without a word. A reader of stderr alone does not.
void EndWithReaderOfStdout();

// For commands whose result is files: they go on without readers. Writes to a closed pipe fail (EPIPE).
void GoOnWithoutReaders();

}  // namespace temper
