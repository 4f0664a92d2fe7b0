#include "train/host_batches.h"

#include <string_view>

#include "base/check.h"
#include "compile/step/update.h"
#include "model/forward.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

int64_t TokensOf(const Program& program) {
  // Stages of a pipeline read different inputs, all of one entry per token.
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role == Role::kInput && FillerOf(buffer.name) != nullptr) return buffer.type.shape[0];
  }
  TEMPER_CHECK(false) << "program " << program.name << " takes no tokens";
  return 0;
}

}  // namespace

HostBatches::HostBatches(const Executor& executor, int64_t micro_batches, std::span<const ReportSpec> reports,
                         const char* also)
    : tokens_(TokensOf(executor.program())),
      micro_batches_(micro_batches),
      columns_(static_cast<size_t>(micro_batches)),
      rng_(static_cast<size_t>(kNumRngWords * micro_batches)),
      reports_(reports.size(), std::vector<float>(static_cast<size_t>(tokens_ * micro_batches))) {
  TEMPER_CHECK((!reports.empty() || also != nullptr) && reports.size() <= kMostReports) << reports.size() << " reports";
  const std::vector<Buffer>& buffers = executor.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    const auto index = static_cast<int>(i);
    if (buffer.name == kRngInput) io_.push_back({index, std::as_writable_bytes(std::span(rng_))});
    if (also != nullptr && buffer.name == also) {
      TEMPER_CHECK(buffer.type.dtype == DType::kF32) << buffer.type.ToString();
      also_.resize(static_cast<size_t>(buffer.type.shape.elements() * micro_batches));
      io_.push_back({index, std::as_writable_bytes(std::span(also_))});
    }
    for (size_t k = 0; k < reports_.size(); ++k) {
      if (buffer.name != reports[k].output) continue;
      io_.push_back({index, std::as_writable_bytes(std::span(reports_[k]))});
    }
    const bool is_own = buffer.name == kRngInput || buffer.name == kScalarsBuffer ||
                        buffer.name == kAverageShareBuffer || buffer.name == kRoundingBuffer ||
                        buffer.name == kBalanceSeedInput;
    if (buffer.role != Role::kInput || is_own) continue;
    const ColumnFiller* const filler = FillerOf(buffer.name);
    TEMPER_CHECK(filler != nullptr && filler->column.dtype == buffer.type.dtype)
        << "no data fills the input " << buffer.name << " " << ToString(buffer.type.dtype);
    const auto bytes = static_cast<size_t>(buffer.type.bytes().v);
    std::vector<std::byte>& values = values_.emplace_back(bytes * static_cast<size_t>(micro_batches));
    io_.push_back({index, values});
    for (size_t m = 0; m < columns_.size(); ++m) {
      columns_[m].push_back({filler, std::span(values).subspan(m * bytes, bytes)});
    }
  }
}

std::span<const int32_t> HostBatches::values(int64_t micro_batch, const ColumnSpec& column) const {
  for (const ColumnArray& array : columns(micro_batch)) {
    if (std::string_view(array.filler->column.name) != column.name) continue;
    return {reinterpret_cast<const int32_t*>(array.values.data()), array.values.size() / sizeof(int32_t)};
  }
  return {};
}

void HostBatches::AddReports(ReportValues* sums) const {
  for (int64_t m = 0; m < micro_batches_; ++m) AddReports(m, sums);
}

void HostBatches::AddReports(int64_t micro_batch, ReportValues* sums) const {
  const auto tokens = static_cast<size_t>(tokens_);
  for (size_t k = 0; k < reports_.size(); ++k) {
    const std::span<const float> own =
        std::span(reports_[k]).subspan(static_cast<size_t>(micro_batch) * tokens, tokens);
    for (const float value : own) (*sums)[k] += value;
  }
}

void HostBatches::SetRng(uint64_t seed, int64_t step, const Peers& peers, int64_t longest) {
  const int64_t tokens = longest > 0 ? longest : tokens_;
  for (int64_t m = 0; m < micro_batches_; ++m) {
    int64_t* const words = rng_.data() + m * kNumRngWords;
    words[kRngSeed] = static_cast<int64_t>(seed);
    words[kRngStep] = step;
    words[kRngFirstToken] = (m * peers.data_ranks + peers.data_rank) * tokens * peers.context_ranks;
  }
}

}  // namespace temper
