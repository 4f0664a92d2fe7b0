#include "api/scoring.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "format/json.h"
#include "train/evaluation_progress.h"
#include "train/judge.h"

namespace temper {
namespace {

// exp(l - max) / sum, in double.
std::vector<double> Softmax(std::span<const float> logits) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (const float logit : logits) sum += p.emplace_back(std::exp(static_cast<double>(logit) - greatest));
  for (double& x : p) x /= sum;
  return p;
}

OrderedJson Judged(const ClassNames& classes, std::span<const float> logits) {
  OrderedJson judged = OrderedJson::object();
  if (logits.size() == 1) {
    judged["reward"] = logits[0];
    return judged;
  }
  const std::vector<double> p = Softmax(logits);
  const auto best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  OrderedJson all = OrderedJson::object();
  for (size_t c = 0; c < p.size(); ++c) all[classes.names[c]] = p[c];
  judged["label"] = classes.names[best];
  judged["probability"] = p[best];
  judged["probabilities"] = std::move(all);
  return judged;
}

}  // namespace

Status RunScoring(ScoringSettings settings, const std::function<void(const std::string& line)>& write,
                  const std::function<bool()>& stop) {
  TEMPER_ASSIGN_OR_RETURN(const auto pass, OpenForwardPass(std::move(settings), {.kind = ProgramKind::kScore}));
  TEMPER_RETURN_IF_ERROR(pass->Load());
  const Dataset& dataset = pass->data.dataset;
  const ClassNames& classes = pass->model.class_head()->classes;
  Judge judge(*pass->executor, dataset.store, pass->row, classes.size(),
              [&](int32_t sample) { return pass->PlaceOf(sample); });
  ProgressDisplay display;
  EvaluationProgress progress(display, EvaluationProgress::Clock::now, "score row");
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> logits,
                          judge.Run(stop, [&](int64_t done, int64_t rows) { progress.Update(done, rows); }));
  display.Finish();
  const auto width = static_cast<size_t>(classes.size());
  size_t file = 0;
  for (int64_t s = 0; s < dataset.store.size(); ++s) {
    while (file + 1 < dataset.files.size() && dataset.files[file + 1].first_sample <= s) ++file;
    OrderedJson line = OrderedJson::object();
    if (dataset.files.size() > 1) line["file"] = dataset.files[file].path;
    line["line"] = dataset.store.line(s);
    line.update(Judged(classes, std::span(logits).subspan(static_cast<size_t>(s) * width, width)));
    write(DumpJson(line));
  }
  return OkStatus();
}

}  // namespace temper
