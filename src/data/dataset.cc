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
#include "base/log.h"
#include "base/quantity.h"
#include "data/document_reader.h"
#include "data/records.h"
#include "data/shuffle.h"
#include "data/token_memory.h"
#include "format/data_file_name.h"

namespace temper {
namespace {

// One thread reads rows, all tokenise them, a block at a time. A block is large enough to make the start of the threads
// (50 us each) negligible, and small enough to keep few texts in memory.
constexpr size_t kBlockRows = 1024;
constexpr size_t kBlockBytes = 4 << 20;
constexpr size_t kBlockPieces = 4;  // of a text file

struct RowOutcome {
  Status status;
  std::vector<Sample> samples;
  DataStatistics statistics;
};

class Loader {
 public:
  Loader(const Tokenizer& tokenizer, const RowTokenizer& rows, const DatasetOptions& options, TokenWriter& out,
         DataDescription& about)
      : tokenizer_(tokenizer), rows_(rows), options_(options), out_(out), about_(about) {}

  // `done`, `total`: bytes of the files before, and of all.
  Status LoadFile(Env& env, const DataInput& input, Bytes done, Bytes total) {
    TEMPER_RETURN_IF_ERROR(CheckUse(input));
    return KindOfDataFile(input.path) == DataFileKind::kText ? LoadDocument(env, input, done, total)
                                                             : LoadRows(env, input, done, total);
  }

 private:
  Status LoadRows(Env& env, const DataInput& input, Bytes done, Bytes total) {
    TEMPER_ASSIGN_OR_RETURN(const auto reader, RecordReader::Open(env, input.path, input.reading, input.use));
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
    const int64_t file_rows = file.rows;
    about_.files.push_back(std::move(file));
    if (file_rows < input.max_rows) return reader->CheckColumns();
    const auto first = static_cast<size_t>(file_rows);
    TEMPER_RETURN_IF_ERROR(reader->CheckColumns(first, /*needed_only=*/true));
    if (const Status found = reader->CheckColumns(first); !found.ok()) LogWarning(found.message());
    return OkStatus();
  }

  // Errors end the reading, also with skip_bad_rows: the samples before them are already written.
  Status LoadDocument(Env& env, const DataInput& input, Bytes done, Bytes total) {
    TEMPER_ASSIGN_OR_RETURN(const auto reader, DocumentReader::Open(env, input.path));
    about_.files.push_back({.path = input.path,
                            .format = RecordFormat::kTextFile,
                            .format_place = "line 1",
                            .rows = 1,
                            .first_sample = out_.size()});
    ++about_.statistics.rows;
    RowTokenizer::OpenText text{.where = input.path};
    std::vector<Sample> samples;
    const size_t block = std::max(kBlockPieces, 2 * static_cast<size_t>(options_.threads));
    std::string rest;
    bool begun = false;
    for (bool more = true; more || !rest.empty();) {
      std::vector<std::string> pieces;
      while (pieces.size() < block && (more || !rest.empty())) {
        TEMPER_ASSIGN_OR_RETURN(std::string piece, NextPiece(*reader, rest, more));
        pieces.push_back(std::move(piece));
      }
      std::vector<Result<RowTokenizer::Piece>> tokens(pieces.size(), RowTokenizer::Piece());
      ForEach(static_cast<int64_t>(pieces.size()), options_.threads, [&](int64_t at) {
        const auto i = static_cast<size_t>(at);
        tokens[i] = rows_.EncodePiece(pieces[i], /*continues=*/begun || i > 0);
        pieces[i] = std::string();
      });
      begun = true;
      for (Result<RowTokenizer::Piece>& piece : tokens) {
        if (!piece.ok()) return piece.status().WithContext(input.path);
        TEMPER_RETURN_IF_ERROR(rows_.Add(*piece, text, samples, about_.statistics));
        piece = RowTokenizer::Piece();
        TEMPER_RETURN_IF_ERROR(Write(samples, /*line=*/1));
      }
      if (options_.progress) options_.progress(done + reader->bytes_read(), total, about_.statistics.rows);
    }
    rows_.End(text, samples, about_.statistics);
    return Write(samples, /*line=*/1);
  }

  // The next piece of a document, of which `rest` has been read and not handed out, and `more` is to be read.
  Result<std::string> NextPiece(DocumentReader& reader, std::string& rest, bool& more) const {
    const auto most = static_cast<size_t>(tokenizer_.max_text().v);
    for (auto size = static_cast<size_t>(options_.piece.v);; size *= 2) {
      const size_t wanted = std::min(2 * size, most + 1);
      if (more) {
        TEMPER_ASSIGN_OR_RETURN(more, reader.Read(wanted, rest));
      }
      if (wanted > most && rest.size() >= wanted) {
        return InvalidArgument(
            fmt::format("{}: no place to cut the text was found in {}, and this tokenizer cannot encode more in one "
                        "piece: split it into documents",
                        reader.path(), ToString(tokenizer_.max_text())));
      }
      if (rest.size() < wanted) return std::exchange(rest, std::string());
      const size_t cut = tokenizer_.FindCut(rest, size);
      if (cut == rest.npos) continue;
      std::string piece = rest.substr(0, cut);
      rest.erase(0, cut);
      return piece;
    }
  }

  // Writes the samples of the row at `line` and clears them.
  Status Write(std::vector<Sample>& samples, int64_t line) {
    for (const Sample& sample : samples) {
      if (options_.visit) options_.visit(out_.size(), sample);
      TEMPER_RETURN_IF_ERROR(
          out_.Add(sample.tokens, sample.supervised, sample.weights, line, sample.parts, sample.values));
    }
    samples.clear();
    if (out_.size() < std::numeric_limits<int32_t>::max()) return OkStatus();
    return Unsupported("more than 2^31 samples in one data set: train on a part of the files");
  }

  Status LoadBlock(const RecordReader& reader, std::vector<RawRow>& block) {
    std::vector<RowOutcome> outcomes(block.size());
    // The first row whose error ends the reading: those behind it are left. Each may cost as much as a template may.
    std::atomic<int64_t> first_bad = std::numeric_limits<int64_t>::max();
    ForEach(static_cast<int64_t>(block.size()), options_.threads, [&](int64_t at) {
      if (at > first_bad) return;
      const auto i = static_cast<size_t>(at);
      RowOutcome& outcome = outcomes[i];
      auto record = reader.Parse(block[i]);
      outcome.status = record.status();
      if (record.ok()) outcome.status = rows_.Tokenize(*record, outcome.samples, outcome.statistics);
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
      TEMPER_RETURN_IF_ERROR(Write(outcome.samples, block[i].line));
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

  const Tokenizer& tokenizer_;
  const RowTokenizer& rows_;
  const DatasetOptions& options_;
  TokenWriter& out_;
  DataDescription& about_;
};

}  // namespace

Status CheckUse(const DataInput& input) {
  const char* const lacks = FactsOf(input.use).no_text_file;
  if (lacks == nullptr || KindOfDataFile(input.path) != DataFileKind::kText) return OkStatus();
  return Unsupported(fmt::format("{}: a text file has no {}", input.path, lacks));
}

std::string Dataset::PlaceOf(int64_t sample) const {
  TEMPER_CHECK(sample >= 0 && sample < store.size()) << "sample " << sample << " of " << store.size();
  const auto next = std::upper_bound(files.begin(), files.end(), sample,
                                     [](int64_t s, const DataFile& file) { return s < file.first_sample; });
  const std::string& path = (next - 1)->path;
  const DataFileKind kind = KindOfDataFile(path);
  const bool columns = kind == DataFileKind::kParquet || kind == DataFileKind::kArrow;
  return fmt::format("{} {} {}", path, columns ? "row" : "line", store.line(sample));
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
  DataDescription about;
  Loader loader(tokenizer, *row_tokenizer, options, out, about);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TEMPER_RETURN_IF_ERROR(loader.LoadFile(env, inputs[i], begins[i], begins.back()));
  }
  const RowFacts& rows = FactsOf(inputs[0].use);
  if (about.statistics.supervised == 0 && (!rows.judged || about.statistics.samples == 0)) {
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
    } else if (s.longest_row > options.tokenize.max_seq_len) {
      why += rows.two_answers
                 ? ". Rows are longer: raise --max_seq_len, which is for both answers, each with its prompt"
                 : fmt::format(". The longest row has {}: raise --max_seq_len", Counted(s.longest_row, "token"));
    } else if (!options.tokenize.train_on_prompt && rows.no_train_on_prompt == nullptr && !rows.by_template) {
      why += ". Completions, answers and the assistant's messages count toward the loss; train_on_prompt adds the rest";
    }
    return Corrupt(std::move(why));
  }
  return out.Finish(FormatDescription(about, key));
}

Result<Dataset> OpenDataset(std::unique_ptr<MappedFile> file, TokenStore::Check check, int64_t vocab,
                            const std::string& key, const std::vector<std::string>& paths) {
  const std::string where = file->path();
  Dataset out;
  TEMPER_ASSIGN_OR_RETURN(out.store, TokenStore::Open(std::move(file), check, vocab));
  TEMPER_ASSIGN_OR_RETURN(DataDescription about, ParseDescription(out.store.about(), key, paths, where));
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
  MemoryTokens tokens(options.tokenize.sections());
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
