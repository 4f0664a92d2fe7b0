#include "data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/for_each.h"
#include "data/records.h"
#include "data/shuffle.h"
#include "data/token_memory.h"
#include "format/json.h"

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

// What a token file says of its samples.
struct About {
  std::vector<DataFile> files;
  DataStatistics statistics;
};

class Loader {
 public:
  Loader(const RowTokenizer& tokenizer, const DatasetOptions& options, TokenWriter& out, About& about)
      : tokenizer_(tokenizer), options_(options), out_(out), about_(about) {}

  // `done`, `total`: bytes of the files before, and of all.
  Status LoadFile(Env& env, const DataInput& input, Bytes done, Bytes total) {
    TEMPER_ASSIGN_OR_RETURN(const auto reader, RecordReader::Open(env, input.path));
    DataFile file{.path = input.path,
                  .format = reader->format(),
                  .format_place = reader->format_place(),
                  .first_sample = out_.size()};
    std::vector<RawRow> block;
    for (bool more = true; more;) {
      block.clear();
      size_t bytes = 0;
      while (block.size() < kBlockRows && bytes < kBlockBytes) {
        RawRow row;
        more = file.rows + static_cast<int64_t>(block.size()) < input.max_rows;
        if (!more) break;
        TEMPER_ASSIGN_OR_RETURN(more, reader->Next(row));
        if (!more) break;
        bytes += row.text.size();
        block.push_back(std::move(row));
      }
      file.rows += static_cast<int64_t>(block.size());
      TEMPER_RETURN_IF_ERROR(LoadBlock(*reader, block));
      if (options_.progress) options_.progress(done + reader->bytes_read(), total, about_.statistics.rows);
    }
    about_.files.push_back(std::move(file));
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
      if (outcome.status.ok() || Skips(outcome.status)) return;
      for (int64_t known = first_bad; at < known && !first_bad.compare_exchange_weak(known, at);) {
      }
    });
    for (size_t i = 0; i < outcomes.size(); ++i) {
      RowOutcome& outcome = outcomes[i];
      ++about_.statistics.rows;
      if (!outcome.status.ok()) {
        if (!Skips(outcome.status)) return WithRemedy(outcome.status);
        about_.statistics.Add({.bad_rows = 1, .problems = {outcome.status.message()}});
        continue;
      }
      about_.statistics.Add(outcome.statistics);
      for (const Sample& sample : outcome.samples) {
        TEMPER_RETURN_IF_ERROR(out_.Add(sample.tokens, sample.supervised, sample.weights, block[i].line));
      }
    }
    if (out_.size() >= std::numeric_limits<int32_t>::max()) {
      return Unsupported("more than 2^31 samples in one data set: train on a part of the files");
    }
    return OkStatus();
  }

  // What is not found, a chat template, every row lacks; a template that exceeds its budget may do so with every row.
  static bool IsOfRow(const Status& bad) {
    return bad.code() != StatusCode::kNotFound && bad.code() != StatusCode::kOutOfMemory;
  }
  bool Skips(const Status& bad) const { return options_.skip_bad_rows && IsOfRow(bad); }
  static Status WithRemedy(const Status& bad) {
    if (!IsOfRow(bad)) return bad;
    return Status(bad.code(), bad.message() + "; fix the row, or skip all bad rows (--skip_bad_rows)");
  }

  const RowTokenizer& tokenizer_;
  const DatasetOptions& options_;
  TokenWriter& out_;
  About& about_;
};

// All of DataStatistics but its bounds of weights, its problems and its unknown tokens.
constexpr std::pair<const char*, int64_t DataStatistics::*> kCounts[] = {
    {"rows", &DataStatistics::rows},
    {"bad_rows", &DataStatistics::bad_rows},
    {"cut_rows", &DataStatistics::cut_rows},
    {"cut_tokens", &DataStatistics::cut_tokens},
    {"dropped_rows", &DataStatistics::dropped_rows},
    {"split_borders", &DataStatistics::split_borders},
    {"longest_row", &DataStatistics::longest_row},
    {"samples", &DataStatistics::samples},
    {"tokens", &DataStatistics::tokens},
    {"supervised", &DataStatistics::supervised},
    {"weighted", &DataStatistics::weighted},
    {"stopping_samples", &DataStatistics::stopping_samples},
};
constexpr std::pair<const char*, Finding DataStatistics::*> kFindings[] = {
    {"empty_answers", &DataStatistics::empty_answers},
    {"unprinted_turns", &DataStatistics::unprinted_turns},
    {"unprinted_tools", &DataStatistics::unprinted_tools},
    {"open_turns", &DataStatistics::open_turns},
};
static_assert(sizeof(DataStatistics) == std::size(kCounts) * sizeof(int64_t) + std::size(kFindings) * sizeof(Finding) +
                                            2 * sizeof(TokenWeight) + sizeof(DataStatistics::problems) +
                                            sizeof(UnknownTokens),
              "a count or a finding is missing above");

std::string Format(const About& about, const std::string& key) {
  Json files = Json::array(), statistics = Json::object();
  for (const DataFile& file : about.files) {
    files.push_back({{"format", static_cast<int>(file.format)},
                     {"format_place", file.format_place},
                     {"rows", file.rows},
                     {"first_sample", file.first_sample}});
  }
  for (const auto& [name, count] : kCounts) statistics[name] = about.statistics.*count;
  for (const auto& [name, finding] : kFindings) {
    const Finding& found = about.statistics.*finding;
    statistics[name] = {{"count", found.count}, {"first", found.first}};
  }
  statistics["least_weight"] = about.statistics.least_weight;
  statistics["largest_weight"] = about.statistics.largest_weight;
  statistics["problems"] = about.statistics.problems;
  const UnknownTokens& unknown = about.statistics.unknown;
  Json characters = Json::object();
  for (const auto& [character, n] : unknown.MostFrequent()) characters[character] = n;
  statistics["unknown"] = {{"token", unknown.token}, {"count", unknown.count}, {"characters", std::move(characters)}};
  const Json json = {{"key", key}, {"files", std::move(files)}, {"statistics", std::move(statistics)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<About> Parse(const Json& json, const std::string& where) {
  const auto wrong = [&](const char* what) {
    return Corrupt(fmt::format("{} is damaged: {} is missing or of another type", where, what));
  };
  About about;
  const auto files = json.find("files"), statistics = json.find("statistics");
  if (files == json.end() || !files->is_array()) return wrong("files");
  if (statistics == json.end() || !statistics->is_object()) return wrong("statistics");
  for (const Json& entry : *files) {
    if (!entry.is_object()) return wrong("a file");
    DataFile& file = about.files.emplace_back();
    TEMPER_ASSIGN_OR_RETURN(const int64_t format, RequireInt(entry, "format", where));
    if (format < 0 || format > static_cast<int64_t>(RecordFormat::kTextFile)) return wrong("the format of a file");
    file.format = static_cast<RecordFormat>(format);
    TEMPER_ASSIGN_OR_RETURN(file.format_place, StringOr(entry, "format_place", "", where));
    TEMPER_ASSIGN_OR_RETURN(file.rows, RequireInt(entry, "rows", where));
    TEMPER_ASSIGN_OR_RETURN(file.first_sample, RequireInt(entry, "first_sample", where));
    const bool first = about.files.size() == 1;
    if (first ? file.first_sample != 0 : file.first_sample < (&file - 1)->first_sample) return wrong("a first sample");
  }
  DataStatistics& s = about.statistics;
  for (const auto& [name, count] : kCounts) {
    TEMPER_ASSIGN_OR_RETURN(s.*count, RequireInt(*statistics, name, where));
  }
  for (const auto& [name, finding] : kFindings) {
    const auto found = statistics->find(name);
    if (found == statistics->end() || !found->is_object()) return wrong(name);
    TEMPER_ASSIGN_OR_RETURN((s.*finding).count, RequireInt(*found, "count", where));
    TEMPER_ASSIGN_OR_RETURN((s.*finding).first, StringOr(*found, "first", "", where));
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t least, RequireInt(*statistics, "least_weight", where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t largest, RequireInt(*statistics, "largest_weight", where));
  s.least_weight = static_cast<TokenWeight>(least);
  s.largest_weight = static_cast<TokenWeight>(largest);
  const auto problems = statistics->find("problems");
  if (problems == statistics->end() || !problems->is_array()) return wrong("problems");
  for (const Json& problem : *problems) {
    if (!problem.is_string()) return wrong("a problem");
    s.problems.push_back(problem.get<std::string>());
  }
  const auto unknown = statistics->find("unknown");
  if (unknown == statistics->end() || !unknown->is_object()) return wrong("unknown");
  TEMPER_ASSIGN_OR_RETURN(s.unknown.token, StringOr(*unknown, "token", "", where));
  TEMPER_ASSIGN_OR_RETURN(s.unknown.count, RequireInt(*unknown, "count", where));
  const auto characters = unknown->find("characters");
  if (characters == unknown->end() || !characters->is_object()) return wrong("the unknown characters");
  for (const auto& [character, n] : characters->items()) {
    if (!n.is_number_integer()) return wrong("an unknown character");
    s.unknown.characters[character] = n.get<int64_t>();
  }
  return about;
}

}  // namespace

std::string Dataset::PlaceOf(int64_t sample) const {
  TEMPER_CHECK(sample >= 0 && sample < store.size()) << "sample " << sample << " of " << store.size();
  const auto next = std::upper_bound(files.begin(), files.end(), sample,
                                     [](int64_t s, const DataFile& file) { return s < file.first_sample; });
  return fmt::format("{} line {}", (next - 1)->path, store.line(sample));
}

Status WriteDataset(Env& env, const std::vector<DataInput>& inputs, const Tokenizer& tokenizer,
                    const ChatTemplate* chat_template, const DatasetOptions& options, const std::string& key,
                    TokenWriter& out) {
  if (inputs.empty()) return InvalidArgument("no data file is given (--data FILE)");
  TEMPER_ASSIGN_OR_RETURN(const auto row_tokenizer, RowTokenizer::Create(tokenizer, chat_template, options.tokenize));
  std::vector<Bytes> begins = {Bytes{}};  // of the files among all bytes
  for (const DataInput& input : inputs) {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(input.path));
    begins.push_back(begins.back() + file->size());
  }
  About about;
  Loader loader(*row_tokenizer, options, out, about);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TEMPER_RETURN_IF_ERROR(loader.LoadFile(env, inputs[i], begins[i], begins.back()));
  }
  if (about.statistics.supervised == 0) {
    const DataStatistics& s = about.statistics;
    std::string why = fmt::format(
        "no token of {}{} is supervised, so there is nothing to train on: {} rows, {} of them bad, "
        "{} with nothing supervised within max_seq_len {}",
        inputs[0].path, inputs.size() > 1 ? " (and the other files)" : "", s.rows, s.bad_rows, s.dropped_rows,
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
  return out.Finish(Format(about, key));
}

Result<Dataset> OpenDataset(std::unique_ptr<MappedFile> file, TokenStore::Check check, int64_t vocab,
                            const std::string& key, const std::vector<std::string>& paths) {
  const std::string where = file->path();
  Dataset out;
  TEMPER_ASSIGN_OR_RETURN(out.store, TokenStore::Open(std::move(file), check, vocab));
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(out.store.about(), where));
  if (!json.is_object()) return Corrupt(where + " is damaged: its description is no object");
  TEMPER_ASSIGN_OR_RETURN(const std::string written, StringOr(json, "key", "", where));
  if (written != key) return NotFound(where + " holds the tokens of other data or settings");
  TEMPER_ASSIGN_OR_RETURN(About about, Parse(json, where));
  if (about.files.size() != paths.size()) return Corrupt(where + " is damaged: it has another number of files");
  for (size_t i = 0; i < paths.size(); ++i) about.files[i].path = paths[i];
  out.files = std::move(about.files);
  out.statistics = std::move(about.statistics);
  return out;
}

std::vector<std::string> InputPaths(const std::vector<DataInput>& inputs) {
  std::vector<std::string> paths;
  for (const DataInput& input : inputs) paths.push_back(input.path);
  return paths;
}

Result<Dataset> LoadDataset(Env& env, const std::vector<DataInput>& inputs, const Tokenizer& tokenizer,
                            const ChatTemplate* chat_template, const DatasetOptions& options) {
  MemoryTokens tokens;
  TEMPER_RETURN_IF_ERROR(WriteDataset(env, inputs, tokenizer, chat_template, options, /*key=*/"", tokens.writer()));
  return OpenDataset(tokens.Take(), TokenStore::Check::kBorders, /*vocab=*/0, /*key=*/"", InputPaths(inputs));
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
  if (wanted == 0) return DataSplit{.train = std::move(ids)};
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
