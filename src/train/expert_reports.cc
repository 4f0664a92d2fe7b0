#include "train/expert_reports.h"

#include <algorithm>

#include "base/check.h"
#include "model/forward.h"

namespace temper {

ExpertReports::ExpertReports(const Executor& executor, int64_t micro_batches, const ExpertReportsSpec& spec)
    : spec_(spec) {
  if (spec.router_aux_loss_coef > 0) specs_.push_back({"aux_loss", kBalanceOutput});
  if (spec.counts) {
    specs_.push_back({"experts/largest_share", kExpertLoadOutput});
    specs_.push_back({"experts/unused", kExpertLoadOutput});
  }
  for (const Buffer& buffer : executor.program().buffers) {
    std::vector<float>* const values = ArrayOf(buffer);
    if (values == nullptr) continue;
    values->resize(static_cast<size_t>(buffer.type.shape.elements() * micro_batches));
    if (values != &load_MLE_) continue;
    experts_ = buffer.type.shape[1];
    load_LE_.resize(static_cast<size_t>(buffer.type.shape.elements()));
  }
}

std::vector<float>* ExpertReports::ArrayOf(const Buffer& buffer) {
  if (buffer.role == Role::kInput && buffer.name == kBalanceSeedInput) return &seed_M_;
  if (buffer.role == Role::kOutput && buffer.name == kBalanceOutput) return &loss_M_;
  return buffer.role == Role::kOutput && buffer.name == kExpertLoadOutput ? &load_MLE_ : nullptr;
}

std::vector<HostArray> ExpertReports::IoOf(const Executor& executor) {
  std::vector<HostArray> io;
  const std::vector<Buffer>& buffers = executor.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::vector<float>* const values = ArrayOf(buffers[i]);
    if (values != nullptr) io.push_back({static_cast<int>(i), std::as_writable_bytes(std::span(*values))});
  }
  return io;
}

void ExpertReports::Seed(double divisor, int64_t filled) {
  filled_ = std::max<int64_t>(filled, 1);
  std::fill(seed_M_.begin(), seed_M_.end(),
            static_cast<float>(spec_.router_aux_loss_coef * divisor / static_cast<double>(filled_)));
}

void ExpertReports::Take(std::span<double> reports) {
  TEMPER_CHECK(reports.size() == specs_.size()) << reports.size() << " reports";
  std::fill(reports.begin(), reports.end(), 0.0);
  size_t next = 0;
  if (spec_.router_aux_loss_coef > 0) {
    for (const float loss : loss_M_) reports[next] += loss / static_cast<double>(filled_);
    ++next;
  }
  if (!spec_.counts || load_LE_.empty()) return;
  std::fill(load_LE_.begin(), load_LE_.end(), 0.0);
  for (size_t i = 0; i < load_MLE_.size(); ++i) load_LE_[i % load_LE_.size()] += load_MLE_[i];
  double &largest_share = reports[next], &unused = reports[next + 1];
  for (auto block = load_LE_.begin(); block != load_LE_.end(); block += experts_) {
    double all = 0, largest = 0;
    for (auto load = block; load != block + experts_; ++load) {
      all += *load;
      largest = std::max(largest, *load);
      unused += *load == 0 ? 1 : 0;
    }
    if (all > 0) largest_share = std::max(largest_share, largest / all);
  }
}

}  // namespace temper
