#include "base/standard_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace temper {
namespace {

extern "C" void HandleClosedPipe(int) {
  const int interrupted = errno;
  pollfd out = {.fd = STDOUT_FILENO};
  if (poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0) {  // nobody reads it
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);  // held back until this handler returns
  }
  errno = interrupted;
}

}  // namespace

void OpenMissingStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number, which is this one. Read-only: what is written must not vanish as if it had been read.
    if (open("/dev/null", O_RDONLY) != stream) _exit(1);  // without a stream to say why
  }
}

void EndWithReaderOfStdout() {
  struct sigaction action = {};
  action.sa_handler = HandleClosedPipe;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

void GoOnWithoutReaders() {
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace temper
