// RatesOfRun: the rates by which a run on this machine chooses (compile/run/run_rates.h), as its option `rates` says:
//   typical  constants of a few cores of a server, or of a GPU
//   measure  those that the resumed checkpoint keeps, if they are of such a run on such a machine; else from this
//            machine's calibration; else measured now
//   NAME     a cluster's file or preset
// Nothing is read or measured for a run whose choices depend on no rates.
#pragma once

#include <optional>
#include <string>

#include "base/env.h"
#include "compile/run/compile_run.h"
#include "compile/run/compiled_run.h"
#include "compile/run/run_rates.h"
#include "run/calibration.h"
#include "run/ranks.h"

namespace temper {

inline constexpr char kRatesFile[] = "rates.yaml";  // of a checkpoint: the rates by which its run chose

inline constexpr char kTypicalRates[] = "typical", kMeasuredRates[] = "measure";
// Whether the option names a cluster.
bool IsNamed(const std::string& rates_option);

class RatesOfRun {
 public:
  // `kept`: the text in the checkpoint that the run resumes from. `env` and `ranks` must outlive it.
  RatesOfRun(Env& env, const Ranks& ranks, std::string option, RunOnMachine run, std::optional<std::string> kept = {})
      : env_(env), ranks_(ranks), option_(std::move(option)), run_(std::move(run)), kept_(std::move(kept)) {}

  // An AskRates. The first rank decides for all. Logs where they come from if they are not those of the checkpoint.
  Result<std::optional<RunRates>> Ask(const Result<bool>& needed);

  // What a checkpoint should keep: a cluster's text; empty if no choice depended on rates, or they are typical.
  const std::string& text() const { return text_; }

 private:
  Result<std::string> Find() const;
  Result<bool> OnAll(bool here) const;  // whether it holds on all ranks

  Env& env_;
  const Ranks& ranks_;
  const std::string option_;
  const RunOnMachine run_;
  const std::optional<std::string> kept_;
  std::string text_;
};

}  // namespace temper
