#include "data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "base/for_each.h"
#include "data/records.h"
#include "data/shuffle.h"

namespace temper {
namespace {

// One thread reads rows, all tokenise them, a block at a time. A block is large enough to make the start of the threads
// (50 us each) negligible, and small enough to keep few texts in memory.
constexpr size_t kBlockRows = 1024;
constexpr size_t kBlockBytes = 4 << 20;

struct RowOutcome {
  Status status;
  std::vector<Sample> samples;
  DataStatistics statistics;
};

class Loader {
 public:
  Loader(const RowTokenizer& tokenizer, const DatasetOptions& options, Dataset& out)
      : tokenizer_(tokenizer), options_(options), out_(out) {}

  Status LoadFile(Env& env, const std::string& path) {
    TEMPER_ASSIGN_OR_RETURN(const auto reader, RecordReader::Open(env, path));
    DataFile file{.path = path,
                  .format = reader->format(),
                  .format_place = reader->format_place(),
                  .first_sample = out_.store.size()};
    std::vector<RawRow> block;
    for (bool more = true; more;) {
      block.clear();
      size_t bytes = 0;
      while (block.size() < kBlockRows && bytes < kBlockBytes) {
        RawRow row;
        TEMPER_ASSIGN_OR_RETURN(more, reader->Next(row));
        if (!more) break;
        bytes += row.text.size();
        block.push_back(std::move(row));
      }
      file.rows += static_cast<int64_t>(block.size());
      TEMPER_RETURN_IF_ERROR(LoadBlock(*reader, block));
    }
    out_.files.push_back(std::move(file));
    return OkStatus();
  }

 private:
  Status LoadBlock(const RecordReader& reader, std::vector<RawRow>& block) {
    std::vector<RowOutcome> outcomes(block.size());
    // The first row whose error ends the reading: those behind it are left. Each may cost as much as a template may.
    std::atomic<int64_t> first_bad = std::numeric_limits<int64_t>::max();
    ForEach(static_cast<int64_t>(block.size()), options_.threads, [&](int64_t at) {
      if (at > first_bad) return;
      const auto i = static_cast<size_t>(at);
      RowOutcome& outcome = outcomes[i];
      auto record = reader.Parse(std::move(block[i]));
      outcome.status = record.status();
      if (record.ok()) outcome.status = tokenizer_.Tokenize(*record, outcome.samples, outcome.statistics);
      if (outcome.status.ok() || options_.skip_bad_rows) return;
      for (int64_t known = first_bad; at < known && !first_bad.compare_exchange_weak(known, at);) {
      }
    });
    for (size_t i = 0; i < outcomes.size(); ++i) {
      RowOutcome& outcome = outcomes[i];
      ++out_.statistics.rows;
      if (!outcome.status.ok()) {
        if (!options_.skip_bad_rows) return WithRemedy(outcome.status);
        out_.statistics.Add({.bad_rows = 1, .problems = {outcome.status.message()}});
        continue;
      }
      out_.statistics.Add(outcome.statistics);
      for (const Sample& sample : outcome.samples) {
        out_.store.Add(sample.tokens, sample.supervised, sample.weights);
        out_.lines.push_back(static_cast<uint32_t>(block[i].line));
      }
    }
    if (out_.store.size() >= std::numeric_limits<int32_t>::max()) {
      return Unsupported("more than 2^31 samples in one data set: train on a part of the files");
    }
    return OkStatus();
  }

  // For the error of a row that can be left out. What is not found, a chat template, every row lacks.
  static Status WithRemedy(const Status& bad) {
    if (bad.code() == StatusCode::kNotFound) return bad;
    return Status(bad.code(), bad.message() + "; fix the row, or skip all bad rows (--skip_bad_rows)");
  }

  const RowTokenizer& tokenizer_;
  const DatasetOptions& options_;
  Dataset& out_;
};

}  // namespace

std::string Dataset::PlaceOf(int64_t sample) const {
  TEMPER_CHECK(sample >= 0 && sample < store.size()) << "sample " << sample << " of " << store.size();
  const auto next = std::upper_bound(files.begin(), files.end(), sample,
                                     [](int64_t s, const DataFile& file) { return s < file.first_sample; });
  return fmt::format("{} line {}", (next - 1)->path, lines[static_cast<size_t>(sample)]);
}

Result<Dataset> LoadDataset(Env& env, const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                            const ChatTemplate* chat_template, const DatasetOptions& options) {
  if (paths.empty()) return InvalidArgument("no data file is given (--data FILE)");
  TEMPER_ASSIGN_OR_RETURN(const auto row_tokenizer, RowTokenizer::Create(tokenizer, chat_template, options.tokenize));
  Dataset out;
  Loader loader(*row_tokenizer, options, out);
  for (const std::string& path : paths) TEMPER_RETURN_IF_ERROR(loader.LoadFile(env, path));
  if (out.statistics.supervised == 0) {
    const DataStatistics& s = out.statistics;
    std::string why = fmt::format(
        "no token of {}{} is supervised, so there is nothing to train on: {} rows, {} of them bad, "
        "{} with nothing supervised within max_seq_len {}",
        paths[0], paths.size() > 1 ? " (and the other files)" : "", s.rows, s.bad_rows, s.dropped_rows,
        options.tokenize.max_seq_len);
    if (!s.problems.empty()) {
      why += ". First problem: " + s.problems[0];
    } else if (s.empty_answers.count > 0) {
      why += fmt::format(
          ". {}, the first at {}",
          s.empty_answers.count == 1 ? "1 answer is empty" : fmt::format("{} answers are empty", s.empty_answers.count),
          s.empty_answers.first);
    } else if (!options.tokenize.train_on_prompt) {
      why += ". Completions, answers and the assistant's messages count toward the loss; train_on_prompt adds the rest";
    }
    return Corrupt(std::move(why));
  }
  return out;
}

Result<DataSplit> SplitForEvaluation(int64_t samples, double amount, uint64_t seed) {
  TEMPER_CHECK(samples >= 0 && samples < std::numeric_limits<int32_t>::max()) << samples << " samples";
  if (!(amount >= 0))
    return InvalidArgument(fmt::format("{} samples to evaluate on: give a fraction below 1 or a count", amount));
  const double wanted = amount >= 1 ? std::floor(amount) : std::ceil(amount * static_cast<double>(samples));
  if (wanted >= static_cast<double>(samples) && wanted > 0) {
    return InvalidArgument(
        fmt::format("keeping {} of {} samples for evaluation leaves none to train on", wanted, samples));
  }
  std::vector<int32_t> ids(static_cast<size_t>(samples));
  std::iota(ids.begin(), ids.end(), 0);
  Shuffle(seed, "data.split", 0, ids);
  const auto border = ids.begin() + static_cast<int64_t>(wanted);
  DataSplit split;
  split.evaluation.assign(ids.begin(), border);
  split.train.assign(border, ids.end());
  std::sort(split.evaluation.begin(), split.evaluation.end());
  std::sort(split.train.begin(), split.train.end());
  return split;
}

}  // namespace temper
