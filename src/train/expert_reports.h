// ExpertReports: what a step reports of a mixture's experts, from its Program's outputs: how unevenly tokens ask for
// them, and the loss that balances them. It also seeds that loss's gradient. Allocates nothing after it is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "objective/objective.h"
#include "runtime/executor.h"

namespace temper {

struct ExpertReportsSpec {
  bool counts = false;              // the model has experts
  double router_aux_loss_coef = 0;  // of the loss that balances them; 0: there is none
};

class ExpertReports {
 public:
  // Arrays for what the Program declares of them: of a pipeline's stages one has outputs, the last one the input.
  ExpertReports(const Executor& executor, int64_t micro_batches, const ExpertReportsSpec& spec);

  // The same on all ranks; none without experts. The first is the loss that balances, if there is one.
  //   aux_loss               its mean over micro-batches, before the coefficient
  //   experts/largest_share  of a block's choices those that went to one expert, the most in any block
  //   experts/unused         experts of all blocks to which no token went
  std::span<const ReportSpec> specs() const { return specs_; }
  // The arrays, for the Program or one that does the same with shorter rows.
  std::vector<HostArray> IoOf(const Executor& executor);

  // Before a step whose gradients are divided by `divisor`, with tokens in the first `filled` of its micro-batches: the
  // gradient of the coefficient times the mean of these micro-batches' losses.
  void Seed(double divisor, int64_t filled);
  // After it: the reports, of a rank whose Program makes them; else zeros.
  void Take(std::span<double> reports);
  double coefficient() const { return spec_.router_aux_loss_coef; }

 private:
  // The array of that input or output; nullptr: it is none of these.
  std::vector<float>* ArrayOf(const Buffer& buffer);

  const ExpertReportsSpec spec_;
  int64_t filled_ = 1, experts_ = 0;
  std::vector<float> seed_M_, loss_M_, load_MLE_;
  std::vector<double> load_LE_;  // of all micro-batches
  std::vector<ReportSpec> specs_;
};

}  // namespace temper
