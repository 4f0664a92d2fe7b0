// What a process is given by who starts it, beyond arguments: standard streams that are closed or go away, and limits.
#include <pty.h>
#include <sys/stat.h>

#include "temper_program.h"

namespace temper::program::process_test {
namespace {

class ProcessSurroundings : public Workplace {
 protected:
  // `script` is run by a shell, with the program as $0 and `arguments` as "$@".
  Ended Shell(const std::string& script, const Arguments& arguments) const {
    Arguments command = {"sh", "-c", script, kProgram};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return Process(command, folder()).Wait();
  }
};

TEST_F(ProcessSurroundings, ClosedStandardStreamsNeverBecomeTheFilesOfARun) {
  ASSERT_EQ(Temper(Train({"--output_dir", "usual"})).code, 0);
  const Ended ended = Shell("exec \"$0\" \"$@\" <&- >&- 2>&-", Train({}));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(Losses(Path("out")), Losses(Path("usual")));
  const auto usual = BytesOf(Path("usual")), out = BytesOf(Path("out"));
  for (const char* name :
       {"adapter_model.safetensors", "adapter_config.json", "checkpoint-4/adapter_model.safetensors"}) {
    EXPECT_TRUE(usual.at(name) == out.at(name)) << name;
  }
  for (const char* name : {"run.yaml", "checkpoint-4/run.yaml"}) {  // these differ in the folder's name
    EXPECT_EQ(std::count(usual.at(name).begin(), usual.at(name).end(), '\n'),
              std::count(out.at(name).begin(), out.at(name).end(), '\n'))
        << out.at(name);
  }
  EXPECT_EQ(Temper({"inspect", "out"}).code, 0);
  EXPECT_EQ(Slurp("out/.temper.lock"), "");
}

TEST_F(ProcessSurroundings, AResultThatCannotBeWrittenIsAnError) {
  const Ended ended = Shell("exec \"$0\" \"$@\" >&-", {"inspect", kModel});
  ExpectEnd(ended, 1, {"could not be written to stdout"});
}

// The reader has closed the pipe before the program starts.
constexpr char kUnread[] = "{ until [ -e closed ]; do sleep 0.01; done; \"$0\" \"$@\"";
constexpr char kClosed[] = "; echo $? >code; } | { exec <&-; : >closed; }";

TEST_F(ProcessSurroundings, ALogThatNobodyReadsDoesNotEndARun) {
  (void)Shell(std::string(kUnread) + " 2>&1" + kClosed, Train({}));
  EXPECT_EQ(Slurp("code"), "0\n");
  EXPECT_EQ(Losses(Path("out")).size(), 4u);
  EXPECT_TRUE(Has("out/adapter_model.safetensors"));
}

TEST_F(ProcessSurroundings, AReportThatNobodyReadsEndsWithoutAWord) {
  const Ended ended = Shell(std::string(kUnread) + kClosed, {"inspect", kModel});
  EXPECT_EQ(Slurp("code"), "141\n") << "as any program that SIGPIPE ends";
  EXPECT_EQ(ended.err, "");
}

TEST_F(ProcessSurroundings, ALimitIsAnErrorWithARemedy) {
#ifdef TEMPER_SANITIZED
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  ExpectEnd(Shell("ulimit -f 20 && exec \"$0\" \"$@\"", Train({})), 1, {"error: ", "out", "ulimit -f unlimited"});
  EXPECT_EQ(Temper(Train({"--overwrite"})).code, 0);
  for (const int mebibytes : {40, 60, 80, 100, 130, 160, 200, 300}) {
    const std::string limit = fmt::format("ulimit -v {} && exec \"$0\" \"$@\"", mebibytes << 10);
    const Ended ended = Shell(limit, Train({"--overwrite"}));
    if (ended.code == 127) continue;  // the loader itself found no room
    if (ended.code == 0) break;
    ExpectEnd(ended, 1, {"error: ", "ulimit -v"});
    EXPECT_EQ(ended.err.find("a bug in temper"), std::string::npos) << ended.err;
  }
}

TEST_F(ProcessSurroundings, APipeIsNoDataFile) {
  ASSERT_EQ(mkfifo(Path("pipe.jsonl").c_str(), 0600), 0);
  ExpectEnd(Temper(Train({"--data", "pipe.jsonl"})), 2, {"pipe.jsonl is a pipe", "into a file first"});
}

// What `command` writes to a terminal.
std::string OnTerminal(const Arguments& command, const std::string& cwd) {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  TEMPER_CHECK(pid >= 0);
  if (pid == 0) {
    std::vector<char*> argv;
    for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    setenv("NO_COLOR", "1", 1);
    if (chdir(cwd.c_str()) == 0) execvp(argv[0], argv.data());
    _exit(126);
  }
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = read(terminal, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(n));
  close(terminal);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << text;
  return text;
}

// They could rewrite the screen or what is typed next. A file gets the bytes as they are.
TEST_F(ProcessSurroundings, EscapeSequencesThatAModelHasLearntDoNotReachATerminal) {
  const std::string model = CopyModel("model");
  std::string tokenizer = Slurp("model/tokenizer.json");
  // The model's comma and full stop become the byte that begins a sequence.
  const auto swap = [&](const std::string& a, const std::string& b) {
    const size_t at = tokenizer.find(a);
    ASSERT_NE(at, std::string::npos) << a;
    tokenizer.replace(at, a.size(), b);
  };
  swap("\"\xC4\x9B\": 219", "\"\xC4\x9B\": 17");
  swap("\".\": 17", "\".\": 219");
  Spill("model/tokenizer.json", tokenizer);
  const Arguments command = Command(
      {"generate", "--model", "model", "--prompt", "Once upon a time", "--temperature", "0", "--max_new_tokens", "80"});
  const Ended piped = Process(command, folder()).Wait();
  ASSERT_NE(piped.out.find('\x1b'), std::string::npos) << "the model wrote no full stop: " << piped.out;
  const std::string shown = OnTerminal(command, folder());
  EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
  EXPECT_NE(shown.find("\\x1b"), std::string::npos) << shown;
}

}  // namespace
}  // namespace temper::program::process_test
