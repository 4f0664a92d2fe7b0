#include "cli/chat_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/log.h"

namespace temper {
namespace {

// Written by a signal handler on any thread.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait for a lock");
int wake[2] = {-1, -1};  // a pipe: a byte for each interrupt wakes a waiting ReadLine

extern "C" void HandleInterrupt(int) {
  const int error = errno;
  interrupted = true;
  const char byte = 0;
  (void)!write(wake[1], &byte, 1);  // a full pipe wakes as well
  errno = error;
}

constexpr char kPrompt[] = "you> ", kHowToLeave[] = "\n(Ctrl-D leaves)\n";

void ForgetInterrupt() {
  interrupted = false;
  char bytes[64];
  while (read(wake[0], bytes, sizeof bytes) > 0) {
  }
}

}  // namespace

ChatTerminal::ChatTerminal() : interactive_(isatty(STDIN_FILENO) != 0) {
  if (!interactive_ || pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) return;
  struct sigaction action = {};
  action.sa_handler = HandleInterrupt;
  action.sa_flags = SA_RESTART;  // so that no write of an answer fails
  sigaction(SIGINT, &action, nullptr);
  if (isatty(STDERR_FILENO) != 0) editor_ = LineEditor::Create(wake[0]);
}

ChatTerminal::~ChatTerminal() {
  if (wake[0] < 0) return;
  signal(SIGINT, SIG_DFL);
  for (int& end : wake) {
    close(end);
    end = -1;
  }
}

bool ChatTerminal::Interrupted() const {
  return interrupted;
}

std::optional<std::string> ChatTerminal::ReadLine() {
  if (wake[0] >= 0) ForgetInterrupt();
  return editor_ ? ReadEdited() : ReadPlain();
}

std::optional<std::string> ChatTerminal::ReadEdited() {
  while (true) {
    std::string line;
    switch (editor_->ReadLine(kPrompt, &line)) {
      case LineEditor::Read::kLine:
        return line;
      case LineEditor::Read::kInterrupted:
        ForgetInterrupt();
        std::fputs(kHowToLeave, stderr);
        break;
      case LineEditor::Read::kEnd:
        std::fputc('\n', stderr);  // the shell's prompt begins its own line
        return std::nullopt;
    }
  }
}

std::optional<std::string> ChatTerminal::ReadPlain() {
  const auto prompt = [&](const char* before = "") {
    if (interactive_) std::fprintf(stderr, "%s%s", before, kPrompt);
  };
  prompt();
  while (true) {
    if (const size_t end = read_.find('\n'); end != read_.npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (ended_) {
      if (read_.empty()) return std::nullopt;
      return std::exchange(read_, {});
    }
    pollfd files[] = {{STDIN_FILENO, POLLIN, 0}, {wake[0], POLLIN, 0}};  // poll passes over a negative descriptor
    if (poll(files, 2, -1) < 0 && errno != EINTR) ended_ = true;
    if (files[1].revents != 0) {
      ForgetInterrupt();
      read_.clear();
      prompt(kHowToLeave);
      continue;
    }
    if (files[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n > 0) {
      read_.append(bytes, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      ended_ = true;
      if (interactive_) std::fputc('\n', stderr);  // the shell's prompt begins its own line
    }
  }
}

}  // namespace temper
