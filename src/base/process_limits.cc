#include "base/process_limits.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "base/log.h"

namespace temper {
namespace {

// Takes no memory: there is none.
[[noreturn]] void EndOutOfMemory() {
  constexpr std::string_view kText =
      "error: out of memory: the system refused an allocation; free some memory, or raise the process's limit "
      "(ulimit -v unlimited)\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(1);  // as of any error
}

[[noreturn]] void EndByException() {
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      LogError(
          "the system refused a thread: this user or cgroup has too many; raise the limit (ulimit -u, pids.max) "
          "or use fewer (--threads)");
      _exit(1);
    }
    LogError(error.what());
  } catch (const std::exception& error) {
    LogError(error.what());
  } catch (...) {
    LogError("an exception of unknown type");
  }
  LogError("nothing handled this. This is a bug in temper.");
  std::abort();
}

}  // namespace

void ReportReachedLimits() {
  std::set_terminate(EndByException);
  signal(SIGXFSZ, SIG_IGN);
}

std::string LimitRemedy(int error) {
  switch (error) {
    case EFBIG:
      return ". The process's limit on the size of a file is too low (ulimit -f unlimited), or the file system's";
    case EMFILE:
      return ". The process's limit on open files is too low: raise it, e.g. ulimit -n 4096";
    case ENOSPC:
    case EDQUOT:
      return ". Free some space, or choose another folder";
    default:
      return "";
  }
}

}  // namespace temper
