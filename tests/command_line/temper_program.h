// Runs the temper program like a user: starts it as a process, passes arguments and signals, and checks its output,
// files and exit code. Header-only, shared by the tests beside it. One thread, small runs on the example's model.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/project_folder_for_test.h"
#include "base/units.h"
#include "checkpoint/state_for_test.h"  // ScratchFolder, Must, Slurp, Spill
#include "format/json.h"

namespace temper::program {

using Arguments = std::vector<std::string>;

// The program under test. A test that is a program itself, or has another, defines TEMPER_PROGRAM.
#ifdef TEMPER_PROGRAM
inline const std::string kProgram = TEMPER_PROGRAM;
#else
inline const std::string kProgram = std::string(kBuildFolder) + "/temper";
#endif
inline const std::string kExample = std::string(kProjectFolder) + "/examples/plain";
inline const std::string kModel = kExample + "/model";

// How a process ended: its exit code, or minus the signal that killed it, its peak memory, and its processor time,
// which unlike wall time hardly grows on a busy machine.
struct Ended {
  int code = 0;
  Bytes peak_rss;
  Seconds processor;
  std::string out, err;
};

class Process {
 public:
  // Runs `command` in folder `cwd`.
  Process(const Arguments& command, const std::string& cwd) {
    int out[2], err[2];
    TEMPER_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    // A page, some forty lines of progress: a run whose output
    // is not read blocks, and cannot end before a signal comes.
    fcntl(err[1], F_SETPIPE_SZ, 4096);
    pid_ = fork();
    TEMPER_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      const int null = open("/dev/null", O_RDONLY);
      dup2(null, STDIN_FILENO);
      signal(SIGINT, SIG_DFL);  // a shell without job control makes its background jobs ignore it
      setenv("NO_COLOR", "1", 1);
      std::vector<char*> argv;
      for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      if (chdir(cwd.c_str()) == 0) execvp(argv[0], argv.data());
      _exit(126);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    (void)Wait();
  }
  Process(const Process&) = delete;

  // Reads stderr up to `text`; false if it ends before.
  bool ReadErrUntil(const std::string& text) {
    while (ended_.err.find(text) == std::string::npos) {
      char c;
      if (read(err_, &c, 1) != 1) return false;
      ended_.err += c;
    }
    return true;
  }
  void Signal(int number) { kill(pid_, number); }
  pid_t pid() const { return pid_; }

  Ended Wait() {
    pollfd files[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
    std::string* texts[] = {&ended_.out, &ended_.err};
    for (int open = 2; open > 0;) {
      if (poll(files, 2, -1) < 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (files[i].revents == 0) continue;
        char piece[4096];
        const ssize_t n = read(files[i].fd, piece, sizeof piece);
        if (n > 0) {
          texts[i]->append(piece, static_cast<size_t>(n));
        } else {
          close(files[i].fd);
          files[i].fd = -1;
          --open;
        }
      }
    }
    int status = 0;
    rusage usage;
    TEMPER_CHECK(wait4(pid_, &status, 0, &usage) == pid_);
    pid_ = 0;
    ended_.peak_rss = Bytes{int64_t{usage.ru_maxrss} << 10};
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    ended_.processor = {seconds(usage.ru_utime) + seconds(usage.ru_stime)};
    ended_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return std::move(ended_);
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1, err_ = -1;
  Ended ended_;
};

inline Arguments Command(Arguments arguments) {
  arguments.insert(arguments.begin(), kProgram);
  return arguments;
}
inline Ended RunTemper(const Arguments& arguments, const std::string& cwd) {
  return Process(Command(arguments), cwd).Wait();
}

// The process that `parent` started as that rank; 0: none.
inline pid_t ProcessOfRank(pid_t parent, int rank) {
  const std::string launched = fmt::format("TEMPER_LAUNCHED_RANK={} ", rank),
                    of_mpi = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
  for (const std::string& process : Must(PosixEnv().List("/proc"))) {
    if (!std::isdigit(process[0])) continue;
    std::ifstream stat("/proc/" + process + "/stat"), environment("/proc/" + process + "/environ");
    std::string text;
    std::getline(stat, text);
    const size_t after_name = text.rfind(')');
    if (after_name == text.npos || std::atoi(text.c_str() + after_name + 4) != parent) continue;
    while (std::getline(environment, text, '\0')) {
      if (text.starts_with(launched) || text == of_mpi) return static_cast<pid_t>(std::stoi(process));
    }
  }
  return 0;
}

// `run` with the options of `more`, which replace its own of the same names.
inline Arguments With(Arguments run, const Arguments& more) {
  const auto name = [](const std::string& argument) { return argument.substr(0, argument.find('=')); };
  for (const std::string& option : more) {
    if (!option.starts_with("--")) continue;
    for (auto it = run.begin(); it != run.end();) {
      if (name(*it) != name(option)) {
        ++it;
        continue;
      }
      const bool has_value = it->find('=') == it->npos && it + 1 != run.end() && !(it + 1)->starts_with("--");
      it = run.erase(it, it + (has_value ? 2 : 1));
    }
  }
  run.insert(run.end(), more.begin(), more.end());
  return run;
}

// A run of the example's model on d.jsonl into out/, some ten milliseconds a step. Options of `more` replace these.
inline Arguments Train(const Arguments& more) {
  return With({"train", "--model",        kModel,   "--data",        "d.jsonl", "--output_dir",
               "out",   "--threads",      "1",      "--max_seq_len", "96",      "--gradient_accumulation_steps",
               "1",     "--warmup_steps", "0",      "--max_steps",   "4",       "--tensorboard",
               "false", "--rates",        "typical"},
              more);
}

// A folder with d.jsonl and e.jsonl, some rows of the example's data.
class Workplace : public testing::Test {
 protected:
  Workplace() {
    Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 60));
    Spill("e.jsonl", FirstLines(kExample + "/pirate_eval.jsonl", 6));
  }

  const std::string& folder() const { return scratch_.path(); }
  std::string Path(const std::string& name) const { return JoinPath(folder(), name); }
  void Spill(const std::string& name, const std::string& text) const { temper::Spill(Path(name), text); }
  std::string Slurp(const std::string& name) const { return temper::Slurp(Path(name)); }
  bool Has(const std::string& name) const { return PosixEnv().IsFile(Path(name)) || PosixEnv().IsFolder(Path(name)); }
  Ended Temper(const Arguments& arguments) const { return RunTemper(arguments, folder()); }

  static std::string FirstLines(const std::string& path, int n) {
    std::ifstream in(path);
    std::string text, line;
    for (int i = 0; i < n && std::getline(in, line); ++i) text += line + "\n";
    return text;
  }

  // A copy of the example's model that tests may damage.
  std::string CopyModel(const std::string& name) const {
    const std::string to = Path(name);
    TEMPER_CHECK(PosixEnv().CreateFolders(to).ok());
    for (const std::string& file : Must(PosixEnv().List(kModel))) {
      temper::Spill(JoinPath(to, file), temper::Slurp(JoinPath(kModel, file)));
    }
    return to;
  }

  // The example's model under a head of these classes, whose weight is in a file of its own.
  std::string ModelWithHead(const std::string& name, const std::string& head,
                            const std::vector<std::string>& classes) const {
    const std::string to = CopyModel(name);
    Json config = Json::parse(temper::Slurp(to + "/config.json"));
    config["architectures"] = {"LlamaForSequenceClassification"};
    config["pad_token_id"] = 1;
    for (size_t i = 0; i < classes.size(); ++i) {
      config["id2label"][std::to_string(i)] = classes[i];
      config["label2id"][classes[i]] = i;
    }
    temper::Spill(to + "/config.json", config.dump());
    const std::string weights = temper::Slurp(to + "/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, weights.data(), sizeof length);
    Json files;
    const Json header = Json::parse(weights.substr(sizeof length, length));
    for (const auto& [tensor, where] : header.items()) {
      if (tensor != "__metadata__") files[tensor] = "model-00001-of-00002.safetensors";
    }
    files["score.weight"] = "model-00002-of-00002.safetensors";
    temper::Spill(to + "/model-00001-of-00002.safetensors", weights);
    temper::Spill(to + "/model-00002-of-00002.safetensors", temper::Slurp(head));
    temper::Spill(to + "/model.safetensors.index.json", Json({{"weight_map", files}}).dump());
    TEMPER_CHECK(PosixEnv().RemoveFile(to + "/model.safetensors").ok());
    return to;
  }

 private:
  const ScratchFolder scratch_;
};

// Expects that the run ended with `code`, and that its last line
// is an error (or its stderr has a warning) with all `parts`.
inline void ExpectEnd(const Ended& ended, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(ended.code, code) << ended.err;
  for (const std::string& part : parts) {
    EXPECT_NE(ended.err.find(part), std::string::npos) << "'" << part << "' is not said in:\n" << ended.err;
  }
}

// Every file below `folder`, without times (without the clock, and without speed and memory in metrics.jsonl), and
// without the place of the folder in run.yaml.
inline std::map<std::string, std::string> BytesOf(const std::string& folder, const std::string& prefix = "") {
  std::map<std::string, std::string> files;
  for (const std::string& name : Must(PosixEnv().List(folder))) {
    const std::string path = JoinPath(folder, name);
    if (PosixEnv().IsFolder(path)) {
      files.merge(BytesOf(path, prefix + name + "/"));
    } else if (name == "metrics.jsonl") {
      std::ifstream in(path);
      for (std::string line; std::getline(in, line);) {
        Json row = Json::parse(line);
        for (const char* time : {"tokens_per_second", "mfu", "seconds", "eval_seconds", "ranks"}) row.erase(time);
        files[prefix + name] += row.dump() + "\n";
      }
    } else if (name != "clock.json" && name != ".temper.lock") {
      files[prefix + name] = Slurp(path);
    }
    if (prefix.empty() && name == "run.yaml") {
      const std::string place = FolderOf(folder) + "/";
      std::string& text = files[name];
      for (size_t at = 0; (at = text.find(place, at)) != text.npos;) text.erase(at, place.size());
    }
  }
  return files;
}

// Rows of metrics.jsonl, the last of them first.
inline std::vector<Json> Rows(const std::string& out) {
  std::vector<Json> rows;
  std::ifstream in(JoinPath(out, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) rows.insert(rows.begin(), Json::parse(line));
  return rows;
}

// A JSON value per line of what a command prints.
inline std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(Json::parse(text.substr(at, text.find('\n', at) - at)));
  }
  return lines;
}

// losses[step] of metrics.jsonl.
inline std::map<int64_t, double> Losses(const std::string& out) {
  std::map<int64_t, double> losses;
  std::ifstream in(JoinPath(out, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line);
    if (row.contains("loss")) losses[row["step"].get<int64_t>()] = row["loss"].get<double>();
  }
  return losses;
}

// Expects that `stopped` ended like `whole`, except for checkpoints of the steps at which it was stopped.
inline void ExpectSame(const std::string& whole, const std::string& stopped) {
  const auto expected = BytesOf(whole), got = BytesOf(stopped);
  EXPECT_GT(expected.size(), 8u);
  for (const auto& [name, bytes] : expected) {
    const auto it = got.find(name);
    ASSERT_NE(it, got.end()) << name;
    EXPECT_TRUE(it->second == bytes) << name << " differs";
  }
}

// Trains twice on `rows`, the file `data`, in two folders within `folder`: at once, and stopped in step 3 of 8 and
// resumed (stopped/). Expects the same bytes.
inline void ExpectSameIfStopped(const std::string& folder, const Arguments& run, const std::string& rows,
                                const std::string& data) {
  const std::string whole = folder + "/whole", stopped = folder + "/stopped";
  for (const std::string& one : {whole, stopped}) {
    TEMPER_CHECK(PosixEnv().CreateFolders(one).ok());
    Spill(JoinPath(one, data), rows);
  }
  const Ended unstopped = RunTemper(run, whole);
  ASSERT_EQ(unstopped.code, 0) << unstopped.err;
  Process first(Command(run), stopped);
  ASSERT_TRUE(first.ReadErrUntil("train step 3/8"));
  first.Signal(SIGTERM);
  const Ended ended = first.Wait();
  ASSERT_EQ(ended.code, 75) << ended.err;
  const Ended resumed = RunTemper(With(run, {"--resume"}), stopped);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  ExpectSame(whole + "/out", stopped + "/out");
}

}  // namespace temper::program
