// temper at a terminal, as a user sees it: the editing of lines in chat, colours, and the bar of a run.
#include <sys/ioctl.h>
#include <termios.h>

#include <chrono>
#include <thread>

#include "temper_program.h"

namespace temper::program::terminal_test {
namespace {

using AtATerminal = Workplace;

// temper at a terminal: what is typed goes in, prompts come out. Its stdout is a pipe that is full after some bytes, so
// that an answer waits in its middle.
class Terminal {
 public:
  static constexpr size_t kRoom = 8;  // bytes of an answer before it waits

  Terminal(const Arguments& command, const std::string& cwd) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    TEMPER_CHECK(master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0);
    const std::string name = ptsname(master_);
    int out[2];
    TEMPER_CHECK(pipe2(out, O_CLOEXEC) == 0);
    const int size = fcntl(out[1], F_SETPIPE_SZ, 4096);
    filler_ = static_cast<size_t>(size) - kRoom;
    const std::string filler(filler_, '#');
    TEMPER_CHECK(write(out[1], filler.data(), filler.size()) == static_cast<ssize_t>(filler.size()));
    pid_ = fork();
    TEMPER_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      setsid();
      const int terminal = open(name.c_str(), O_RDWR);  // becomes the controlling terminal
      dup2(terminal, STDIN_FILENO);
      dup2(terminal, STDERR_FILENO);
      dup2(out[1], STDOUT_FILENO);
      signal(SIGINT, SIG_DFL);
      std::vector<char*> argv;
      for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      if (chdir(cwd.c_str()) == 0) execvp(argv[0], argv.data());
      _exit(126);
    }
    close(out[1]);
    out_ = out[0];
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(master_);
    close(out_);
  }
  Terminal(const Terminal&) = delete;

  void Type(const std::string& text) const { TEMPER_CHECK(write(master_, text.data(), text.size()) > 0); }
  // Reads the screen on until `text` is on it; false if the program ends before.
  bool ReadUntil(const std::string& text) {
    const size_t from = seen_;
    while (screen_.find(text, from) == std::string::npos) {
      char c;
      if (read(master_, &c, 1) != 1) return false;
      screen_ += c;
    }
    seen_ = screen_.size();
    return true;
  }
  // Until the answer waits for room in the pipe.
  void WaitForAnswer() const {
    int bytes = 0;
    while (ioctl(out_, FIONREAD, &bytes) == 0 && static_cast<size_t>(bytes) <= filler_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  // The rest of the answer, which makes room.
  std::string ReadAnswer() {
    std::string text;
    while (!text.ends_with('\n')) {
      char piece[4096];
      const ssize_t n = read(out_, piece, sizeof piece);
      if (n <= 0) break;
      text.append(piece, static_cast<size_t>(n));
    }
    const std::string answer = text.substr(std::min(filler_, text.size()));
    filler_ = 0;
    return answer;
  }
  int Wait() {
    int status = 0;
    TEMPER_CHECK(waitpid(std::exchange(pid_, 0), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& screen() const { return screen_; }

 private:
  int master_ = -1, out_ = -1;
  pid_t pid_ = 0;
  size_t filler_ = 0, seen_ = 0;
  std::string screen_;
};

TEST_F(AtATerminal, ChatGreetsAndCtrlCStopsAnAnswerAndCtrlDLeaves) {
  const std::string question = "Why does it rain?";
  const Ended whole = Temper({"generate", kModel, "--chat", "--prompt", question, "--threads", "1"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_GT(whole.out.size(), 60u);

  // Of a terminal that cannot move its cursor lines are read as it sends them.
  Terminal chat(With({"env", "TERM=dumb"}, Command({"chat", kModel, "--threads", "1"})), folder());
  ASSERT_TRUE(chat.ReadUntil("you> ")) << chat.screen();
  for (const std::string& part : {kModel + " (LlamaForCausalLM)", std::string("/help lists commands"),
                                  std::string("Ctrl-C stops an answer, Ctrl-D leaves")}) {
    EXPECT_NE(chat.screen().find(part), std::string::npos) << chat.screen();
  }
  chat.Type(question + "\n");
  chat.WaitForAnswer();
  chat.Type("\x03");
  ASSERT_TRUE(chat.ReadUntil("^C"));
  const std::string stopped = chat.ReadAnswer();
  EXPECT_GT(stopped.size(), 1u);
  EXPECT_LT(stopped.size(), 40u) << stopped;
  EXPECT_TRUE(whole.out.starts_with(stopped.substr(0, stopped.size() - 1))) << stopped;
  ASSERT_TRUE(chat.ReadUntil("you> "));

  chat.Type("forget this\x03");  // at the prompt: drops the line
  ASSERT_TRUE(chat.ReadUntil("(Ctrl-D leaves)"));
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("/new\n");
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type(question + "\n");
  EXPECT_EQ(chat.ReadAnswer(), whole.out) << "after /new the model does not know the stopped answer";
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(AtATerminal, ChatEditsLinesKeepsAHistoryAndPastesOneMessage) {
  Terminal chat(With({"env", "TERM=xterm"}, Command({"chat", kModel, "--threads", "1"})), folder());
  ASSERT_TRUE(chat.ReadUntil("you> ")) << chat.screen();
  if (chat.screen().find("\x1b[?2004h") == std::string::npos) GTEST_SKIP() << "built without libedit";
  const std::string unknown = "no command '/nwe'";
  chat.Type(
      "/nwx\x7f"
      "e\r");  // a typing error, erased
  ASSERT_TRUE(chat.ReadUntil(unknown)) << chat.screen();
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("\x1b[A\r");  // up: the line before
  ASSERT_TRUE(chat.ReadUntil(unknown)) << chat.screen();
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("\x1b[200~/system Be brief.\nAnswer in German.\n\x1b[201~\r");
  ASSERT_TRUE(chat.ReadUntil("the system message is set")) << chat.screen();
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("forget this\x03");
  ASSERT_TRUE(chat.ReadUntil("(Ctrl-D leaves)")) << chat.screen();
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("/new\r");
  ASSERT_TRUE(chat.ReadUntil("a new conversation")) << chat.screen();
  ASSERT_TRUE(chat.ReadUntil("you> "));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0) << chat.screen();
}

// At a terminal whose user has not switched colours off.
Arguments Coloured(const Arguments& command) {
  return With({"env", "-u", "NO_COLOR", "TERM=xterm"}, Command(command));
}

TEST_F(AtATerminal, ErrorsHaveAColourUnlessTheUserOrTheTerminalWantsNone) {
  const std::string mistake = "there is no command 'trian'", red = "\x1b[1;31merror: \x1b[0m";
  Terminal coloured(Coloured({"trian"}), folder());
  ASSERT_TRUE(coloured.ReadUntil(mistake));
  EXPECT_NE(coloured.screen().find(red + mistake), std::string::npos) << coloured.screen();
  for (const char* setting : {"NO_COLOR=1", "TERM=dumb"}) {
    Terminal plain(With({"env", "-u", "NO_COLOR", "TERM=xterm", setting}, Command({"trian"})), folder());
    ASSERT_TRUE(plain.ReadUntil(mistake));
    EXPECT_NE(plain.screen().find("error: " + mistake), std::string::npos) << plain.screen();
    EXPECT_EQ(plain.screen().find('\x1b'), std::string::npos) << plain.screen();
  }
}

TEST_F(AtATerminal, ARunEndsWithTheBarOfItsTrainingAlsoAfterAnEvaluation) {
  Terminal run(Coloured(Train({"--max_steps", "2", "--eval_data", "e.jsonl", "--eval_steps", "1"})), folder());
  ASSERT_TRUE(run.ReadUntil("step 2  eval_loss")) << run.screen();
  ASSERT_TRUE(run.ReadUntil("next:")) << run.screen();
  const std::string& screen = run.screen();
  const size_t bar = screen.rfind("\r\x1b[K");
  ASSERT_NE(bar, std::string::npos);
  EXPECT_EQ(screen.substr(bar + 4, 9), "train 2/2") << screen.substr(bar);
}

}  // namespace
}  // namespace temper::program::terminal_test
