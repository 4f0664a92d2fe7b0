// temper.h: Temper in a program of yours. Train, Plan and Evaluate do what the commands of these names do; Open gives a
// model that answers.
//
//   temper::Settings run;
//   run.Set("model", "models/smollm").Set("data", "rows.jsonl").Set("output_dir", "out").Set("learning_rate", 2e-4);
//   const temper::Result<temper::TrainResult> trained = temper::Train(run);
//   if (!trained.ok()) std::cerr << trained.status().message() << "\n";
//
// Errors are a Status, of what the run was asked for or of the world; no exception comes out. Nothing here reads a
// command line, writes to stdout or stderr, handles a signal or ends the process: what a run has to say, it says to its
// Observer. Only a bug of Temper prints a line and aborts.
//
// Threads: all functions may be called by several threads at once. Runs do not disturb each other's results, but share
// the machine: give each its part of it (`threads`, `memory.device`). docs/howto/embed.md lists what is the process's.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace temper {

// Settings by the names that they have in files and on the command line ("learning_rate", "lora.r"; `temper train
// --help` lists them). Names and values are checked where the settings are used: errors name the setting. A value type.
class Settings {
 public:
  Settings() = default;
  // Of YAML, as in a run's file. Values that are set besides win over it. `file` names it in errors.
  static Settings Yaml(std::string text, std::string file = "settings");

  // As on the command line. The last value of a name counts; lists and maps are YAML: "[q_proj, v_proj]".
  Settings& Set(std::string name, std::string value);
  // One more of a list whose members are texts: a file of "data".
  Settings& Add(std::string name, std::string value);

  template <class T>
  requires std::is_arithmetic_v<T> Settings& Set(std::string name, T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return Set(std::move(name), std::string(value ? "true" : "false"));
    } else {
      char text[64];  // a double's shortest text has at most 24 characters
      return Set(std::move(name), std::string(text, std::to_chars(text, text + sizeof text, value).ptr));
    }
  }

  struct Entry {
    std::string name, value;
    bool adds = false;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& yaml() const { return yaml_; }
  const std::string& file() const { return file_; }

 private:
  std::vector<Entry> entries_;  // in the order given
  std::string yaml_, file_;
};

// The progress of one thing that takes a while: steps, rows of an evaluation, bytes of a model that is read.
struct Progress {
  std::string_view what;  // "train", "eval row", "load"; of this call only
  int64_t done = 0, total = 0;
  bool in_bytes = false;
  std::optional<double> seconds_left;
};

// What a task reports beside its loss: "rewards/margins".
using Reports = std::vector<std::pair<std::string, double>>;

struct StepMetrics {
  int64_t step = 0, total_steps = 0;  // done, from 1
  double epoch = 0;                   // passes over the data done, with fraction
  double loss = 0;                    // mean over the supervised tokens of this step, or over its samples (preferences)
  Reports reports;                    // means as the loss
  double grad_norm = 0, learning_rate = 0;
  int64_t tokens = 0;  // trained on since the start of the run, without padding
  double seconds = 0;  // that this step took
  double seconds_left = 0;
};

struct EvaluationMetrics {
  int64_t step = 0;                 // 0: not within a run
  double loss = 0;                  // mean over the supervised tokens, or the samples (preferences)
  Reports reports;                  // means as the loss
  int64_t tokens = 0, samples = 0;  // supervised; samples: 0 within a run
  double seconds = 0;
};

// What a call has to say. It must outlive the call, and a model that it was given to. What one call tells never
// overlaps, but not all comes from the thread that called Train: lines and checkpoints may be told by threads of the
// run. An observer of several calls at once has to lock. Its functions must not throw, and should return soon: a step
// waits.
class Observer {
 public:
  enum class Level { kInfo, kWarning, kError };

  virtual ~Observer() = default;
  // A line for people, as the program prints it: without its end, and without the level.
  virtual void OnLine(Level, std::string_view) {}
  virtual void OnProgress(const Progress&) {}
  virtual void OnStep(const StepMetrics&) {}
  virtual void OnEvaluation(const EvaluationMetrics&) {}
  // A checkpoint that is complete and durable.
  virtual void OnCheckpoint(const std::string& /*folder*/, int64_t /*step*/) {}
};

struct TrainResult {
  // kStopped: as asked; "resume" goes on from there, bit for bit. kDiverged: by stop_on_divergence.
  enum class End { kDone, kStopped, kDiverged };

  End end = End::kDone;
  std::string why;                    // of an end before the last step, also by early stopping
  std::string output_dir;             // as it was set; with kDone a model folder for Open
  int64_t step = 0, total_steps = 0;  // done, and of the whole run; total_steps is 0 before they are counted
  int64_t tokens = 0;                 // trained on
  double seconds = 0;                 // in steps, over all resumptions
  std::optional<double> eval_loss, best_eval_loss;
  std::optional<double>
      best_metric;  // by "metric_for_best_model"; unless that is eval_loss, best_eval_loss stays empty
  int64_t best_step = 0;
};

// Trains as `temper train` does, on one rank. `stop` is asked between the steps (the run then saves and ends), within
// an evaluation, and between the parts of the preparation (nothing is saved then).
Result<TrainResult> Train(const Settings& settings, Observer* observer = nullptr, std::stop_token stop = {});

struct PlanResult {
  // Into the memory of the machines that it was planned for, as far as that is known; absent where the text is all.
  std::optional<bool> fits;
  std::string why_not;       // what the run would be refused for; not only memory
  int64_t device_bytes = 0;  // that a step reserves on a rank, and outside its device
  int64_t host_bytes = 0, disk_bytes = 0;
  int64_t parameters = 0, trained_parameters = 0;
  int64_t tokens_per_step = 0;
  std::optional<int64_t> steps;  // if max_steps or the data says them
  // On a cluster, and on this machine once it is calibrated.
  std::optional<double> seconds_per_step, tokens_per_second;
  std::string text, json;  // the report
};

// Plans as `temper plan` does, and takes its settings: cluster, price, read_data. Needs config.json alone. With search,
// sharding or program, the text is what these print, and most facts are absent.
Result<PlanResult> Plan(const Settings& settings, Observer* observer = nullptr);

// Loss of a model on data, with the settings of `temper eval`. Stopped, it ends with kInterrupted.
Result<EvaluationMetrics> Evaluate(const Settings& settings, Observer* observer = nullptr, std::stop_token stop = {});

struct Message {
  std::string role, content;  // "system", "user", "assistant"
};

// A model that answers. Movable; one thread at a time, which need not be the same. REQUIRES: it was not moved from.
class TextModel {
 public:
  // A piece of the answer: whole characters. False ends the answer.
  using OnText = std::function<bool(std::string_view text)>;

  TextModel(TextModel&&) noexcept;
  TextModel& operator=(TextModel&&) noexcept;
  ~TextModel();

  // Continues `prompt`; returns the continuation. `sampling`: max_new_tokens, temperature, top_k, top_p, min_p,
  // repetition_penalty, seed, as of `temper generate`.
  Result<std::string> Generate(const std::string& prompt, const Settings& sampling = {}, const OnText& on_text = {});
  // Answers the last message, through the model's chat template.
  Result<std::string> Chat(std::span<const Message> messages, const Settings& sampling = {},
                           const OnText& on_text = {});

  int64_t context() const;  // tokens of prompt and answer that it holds

 private:
  friend Result<TextModel> Open(const Settings& settings, Observer* observer);
  struct Impl;
  explicit TextModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Opens and loads a model: a model folder, an adapter, a checkpoint, or an output folder of Train. `settings`: those of
// `temper generate` that concern the model (model, adapter, base, dtype, device, threads, ..., chat_template_kwargs),
// and "context", the tokens of prompt and answer to make room for (4096, or the model's positions if these are fewer).
// `observer` must outlive the model.
Result<TextModel> Open(const Settings& settings, Observer* observer = nullptr);

}  // namespace temper
