#include "api/plan_data.h"

#include <fmt/core.h>

#include <numeric>
#include <vector>

#include "base/log.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "format/text_stream.h"

namespace temper {
namespace {

// Data of up to this size is read without being asked to: a second or two.
constexpr Bytes kReadUnasked = MiB(16);

// Of the text that the file holds, which may be packed; above `most` it is not unpacked to its end.
Result<Bytes> TextSize(const std::string& path, Bytes most) {
  TEMPER_ASSIGN_OR_RETURN(const auto stream, TextStream::Open(PosixEnv(), path));
  if (!stream->compressed()) return stream->size();
  std::vector<char> piece(size_t{1} << 20);
  Bytes size;
  while (size <= most) {
    TEMPER_ASSIGN_OR_RETURN(const size_t n, stream->Read(piece));
    if (n == 0) break;
    size += Bytes{static_cast<int64_t>(n)};
  }
  return size;
}

Result<Bytes> TextSize(const RunConfig& config, const DataSources& sources, const char* option, Bytes most) {
  TEMPER_ASSIGN_OR_RETURN(const auto inputs,
                          FindInputs(PosixEnv(), sources, config.data.reading, RowUseOf(config), option));
  Bytes size;
  for (const DataInput& input : inputs) {
    TEMPER_ASSIGN_OR_RETURN(const Bytes one, TextSize(input.path, most));
    size += one;
  }
  return size;
}

}  // namespace

Result<RunData> ReadData(const TrainSetup& setup) {
  const RunConfig& config = setup.run.config;
  if (config.data.data.empty()) return InvalidArgument("read_data: the run names no data: add --data FILE");
  if (setup.model.folder().empty()) {
    return InvalidArgument(fmt::format("read_data: a tokenizer is needed: give --model the folder of {}, not its name",
                                       config.model.model));
  }
  return LoadRunData(PosixEnv(), setup.model, TrainingData(config));
}

Result<std::optional<RunData>> SmallData(const TrainSetup& setup) {
  const RunConfig& config = setup.run.config;
  std::optional<RunData> data;
  if (config.data.data.empty() || setup.model.folder().empty()) return data;
  TEMPER_ASSIGN_OR_RETURN(Bytes size, TextSize(config, config.data.data, "data", kReadUnasked));
  if (size > kReadUnasked) {
    LogInfo("run         add --read_data for its steps and hours: its data is large, and is not read unasked");
    return data;
  }
  TEMPER_ASSIGN_OR_RETURN(data, ReadData(setup));
  if (config.data.eval_data.empty()) return data;
  TEMPER_ASSIGN_OR_RETURN(const Bytes held_out,
                          TextSize(config, config.data.eval_data, "eval_data", kReadUnasked - size));
  if (size + held_out > kReadUnasked) return data;
  DataRequest request = TrainingData(config);
  request.sources = config.data.eval_data;
  request.option = "eval_data";
  TEMPER_RETURN_IF_ERROR(LoadRunData(PosixEnv(), setup.model, request).status());
  return data;
}

Result<std::optional<RunLength>> LengthOf(const RunConfig& config, const std::optional<RunData>& data, int64_t rows,
                                          int64_t tokens_per_step) {
  const int64_t most = config.length.max_steps.value_or(-1);
  if (!data) {
    if (most <= 0) return std::optional<RunLength>();
    return std::optional(RunLength{.steps = most, .tokens = static_cast<double>(most * tokens_per_step)});
  }
  const auto seed = static_cast<uint64_t>(config.machine.seed);
  const TokenStore& store = data->dataset.store;
  TEMPER_ASSIGN_OR_RETURN(const DataSplit split, SplitForEvaluation(store.size(), config.data.eval_fraction, seed));
  const int64_t row = *config.data.max_seq_len;
  const PackingOptions options{
      .max_seq_len = row, .packing = config.data.packing, .passes = PassesOf(data->dataset, config.data.data)};
  TEMPER_RETURN_IF_ERROR(CheckPasses(split.train, options.passes));
  Packing packing(store, split.train, options);
  const double of_epoch = packing.efficiency() * static_cast<double>(packing.rows() * row);
  TEMPER_ASSIGN_OR_RETURN(const StepCount steps, StepsOf(packing, seed, rows, config.length.num_train_epochs, most));
  TEMPER_ASSIGN_OR_RETURN(const PackedRows packed,
                          PackedRowsOf(config, SamplesPerEpoch(split.train, options.passes), packing.rows(), rows));
  const double epochs = static_cast<double>(steps.total) / static_cast<double>(steps.per_epoch);
  return std::optional(RunLength{
      .steps = steps.total, .steps_per_epoch = steps.per_epoch, .tokens = epochs * of_epoch, .packed = packed});
}

Result<RowFill> FillOf(const RunConfig& config, const RunData& data) {
  std::vector<int32_t> all(static_cast<size_t>(data.dataset.store.size()));
  std::iota(all.begin(), all.end(), 0);
  const int64_t row = *config.data.max_seq_len;
  const PackingOptions options{
      .max_seq_len = row, .packing = config.data.packing, .passes = PassesOf(data.dataset, config.data.data)};
  TEMPER_RETURN_IF_ERROR(CheckPasses(all, options.passes));
  const Packing packing(data.dataset.store, all, options);
  const double of_one_document = 0.5 * static_cast<double>(row) * static_cast<double>(row + 1);
  return RowFill{.tokens = packing.efficiency(),
                 .attended = packing.attended_pairs() / (static_cast<double>(packing.rows()) * of_one_document)};
}

}  // namespace temper
