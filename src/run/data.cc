#include "run/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/companion_files.h"
#include "data/records.h"
#include "data/template_tokens.h"
#include "data/token_cache.h"
#include "format/checksum.h"
#include "format/data_file_name.h"
#include "format/hub_cache.h"
#include "format/quoted.h"
#include "format/text_stream.h"
#include "run/chat_context.h"
#include "train/transfer_progress.h"

namespace temper {

DataRequest TrainingData(const RunConfig& config) {
  return {.sources = config.data.data,
          .max_seq_len = *config.data.max_seq_len,
          .train_on_prompt = config.data.train_on_prompt,
          .skip_bad_rows = config.data.skip_bad_rows,
          .template_date = config.data.template_date,
          .chat_template_kwargs = config.data.chat_template_kwargs,
          .threads = static_cast<int>(*config.machine.threads),
          .cache = config.data.data_cache};
}

Result<std::vector<DataInput>> FindInputs(Env& env, const DataSources& sources, const char* option) {
  std::vector<DataInput> inputs;
  for (const DataSource& source : sources) {
    TEMPER_ASSIGN_OR_RETURN(std::string path, FindDataFile(env, source.path, option));
    if (source.max_samples && KindOfDataFile(path) == DataFileKind::kText) {
      return InvalidArgument(
          fmt::format("--{} {}: max_samples counts rows, and a text file is one document: remove it", option, path));
    }
    if (!env.IsFile(path) && !env.IsFolder(path) && path.find(',') != std::string::npos) {
      return NotFound(
          fmt::format("--{} {}: there is no such file; for several files repeat --{}", option, path, option));
    }
    inputs.push_back({.path = std::move(path)});
    if (source.max_samples) inputs.back().max_rows = *source.max_samples;
  }
  return inputs;
}

std::vector<SamplePasses> PassesOf(const Dataset& dataset, const DataSources& sources) {
  if (std::all_of(sources.begin(), sources.end(), [](const DataSource& s) { return s.passes == 1; })) return {};
  std::vector<SamplePasses> passes;
  for (size_t i = 0; i < sources.size(); ++i) passes.push_back({dataset.files[i].first_sample, sources[i].passes});
  return passes;
}

std::string DataFingerprint(const Dataset& dataset, const DataSources& sources) {
  std::string text = fmt::format("xxh3:{:016x}", dataset.store.Fingerprint());
  for (const SamplePasses& set : PassesOf(dataset, sources)) text += fmt::format(",{}", set.first_sample);
  return text;
}

namespace {

constexpr int64_t kPiece = 4 << 20;  // of a token file, for another machine

// All that the tokens of `inputs` depend on: their contents, tokenizer and template, settings, and this program.
Result<std::string> KeyOf(Env& env, const OpenedModel& model, const DataRequest& request, const DatasetOptions& options,
                          const std::optional<ChatTemplate>& chat_template, const std::vector<DataInput>& inputs) {
  const TokenizeOptions& t = options.tokenize;
  std::string key = fmt::format("max_seq_len {}\ntrain_on_prompt {}\nskip_bad_rows {}\nvocab {}\n", t.max_seq_len,
                                t.train_on_prompt, options.skip_bad_rows, t.vocab_size);
  const auto add = [&](const std::string& name, const std::string& path) -> Status {
    TEMPER_ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(env, path));
    key += fmt::format("{} {} {}\n", name, digest.bytes.v, digest.checksum);
    return OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(add("program", "/proc/self/exe"));  // another one may tokenize differently
  TEMPER_ASSIGN_OR_RETURN(const auto files, CompanionFiles(env, model.folder()));
  for (const std::string& name : files) TEMPER_RETURN_IF_ERROR(add(name, JoinPath(model.folder(), name)));
  if (chat_template) {
    const std::string sources = chat_template->sources();
    key += fmt::format("template {}\n", ChecksumHex(std::as_bytes(std::span(sources))));
    if (!request.chat_template_kwargs.text.empty()) key += "kwargs " + request.chat_template_kwargs.text + "\n";
    if (sources.find("strftime_now") != std::string::npos) key += "date " + request.template_date + "\n";
  }
  for (const DataInput& input : inputs) {
    const std::filesystem::path name(WithoutCompression(input.path));  // says how the file is read
    TEMPER_RETURN_IF_ERROR(add("data " + Quoted(name.extension().string()), input.path));
    if (input.max_rows != DataInput().max_rows) key += fmt::format("its first {} rows\n", input.max_rows);
  }
  return key;
}

Result<std::vector<FileVersion>> VersionsOf(Env& env, const std::vector<DataInput>& inputs) {
  std::vector<FileVersion> out;
  for (const DataInput& input : inputs) {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(input.path));
    out.push_back(file->version());
  }
  return out;
}

// What it takes to open the token file of a data set.
struct Kept {
  std::string key;
  std::vector<std::string> paths;
};

// The markers of a template that the model was not made for may be no tokens of its tokenizer.
void DescribeTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::vector<std::string> missing = MarkersWithoutToken(chat_template, tokenizer);
  if (missing.empty()) return;
  const auto end = TurnEndToken(chat_template, tokenizer);
  LogWarning(fmt::format(
      "{}: the tokenizer has no token {}, and reads {} as text{}", chat_template.where(), fmt::join(missing, ", "),
      missing.size() == 1 ? "it" : "them",
      end ? "" : ", also where a turn ends; alpaca and zephyr end turns with the tokenizer's own end token"));
}

// Of the request, with the tokens written to a file or found in one.
Result<RunData> Load(Env& env, const OpenedModel& model, const DataRequest& request, Kept* kept) {
  RunData data;
  TEMPER_ASSIGN_OR_RETURN(data.tokenizer, model.LoadTokenizer());
  TEMPER_ASSIGN_OR_RETURN(data.chat_template, model.LoadChatTemplate(data.tokenizer.get()));
  const int64_t vocab = model.model().facts().vocab;
  if (data.tokenizer->vocab_size() > vocab) {
    LogWarning(
        fmt::format("{}: the tokenizer has {} tokens, but the model has embeddings for {}: rows with other tokens "
                    "are errors",
                    model.folder(), data.tokenizer->vocab_size(), vocab));
  }
  // Once a run: its evaluation data has the same.
  if (model.added_template() && std::string_view(request.option) == "data")
    DescribeTemplate(*data.chat_template, *data.tokenizer);
  TEMPER_ASSIGN_OR_RETURN(const ChatContext context,
                          ChatContext::Create(request.template_date, request.chat_template_kwargs));
  std::optional<TransferProgress> progress;  // since tokenizing began
  const DatasetOptions options{.tokenize = {.max_seq_len = request.max_seq_len,
                                            .train_on_prompt = request.train_on_prompt,
                                            // As in `temper chat`.
                                            .instructions_as_conversations = data.chat_template.has_value(),
                                            .chat = context.options(),
                                            .vocab_size = vocab},
                               .skip_bad_rows = request.skip_bad_rows,
                               .threads = request.threads,
                               .progress = [&](Bytes done, Bytes total, int64_t rows) {
                                 if (!progress) progress.emplace("tokenize");
                                 progress->Update(done, total, rows);
                               }};
  TEMPER_ASSIGN_OR_RETURN(const auto inputs, FindInputs(env, request.sources, request.option));
  kept->paths = InputPaths(inputs);
  const std::vector<std::string>& paths = kept->paths;
  const ChatTemplate* const chat_template = data.chat_template ? &*data.chat_template : nullptr;
  if (request.cache.empty()) {
    TEMPER_ASSIGN_OR_RETURN(data.dataset, LoadDataset(env, inputs, *data.tokenizer, chat_template, options));
    return data;
  }
  TEMPER_ASSIGN_OR_RETURN(const auto versions, VersionsOf(env, inputs));
  TEMPER_ASSIGN_OR_RETURN(kept->key, KeyOf(env, model, request, options, data.chat_template, inputs));
  const TokenCache cache(env, request.cache, kept->key);
  data.token_file = cache.path();
  auto found = cache.Open(TokenStore::Check::kAll, vocab, paths);
  if (found.ok()) {
    LogInfo(fmt::format("tokens      from {}: data, tokenizer and settings are the same", cache.path()));
    data.dataset = *std::move(found);
    return data;
  }
  if (found.status().code() == StatusCode::kCorrupt) LogWarning(found.status().message() + "; it is made again");
  TEMPER_RETURN_IF_ERROR(cache.Make([&](std::unique_ptr<WritableFile> file) -> Status {
    TokenWriter writer(std::move(file));
    TEMPER_RETURN_IF_ERROR(WriteDataset(env, inputs, *data.tokenizer, chat_template, options, kept->key, writer));
    TEMPER_ASSIGN_OR_RETURN(const auto now, VersionsOf(env, inputs));
    if (now == versions) return OkStatus();
    return InvalidArgument(fmt::format("{} changed while it was read: start again", fmt::join(paths, " or ")));
  }));
  TEMPER_ASSIGN_OR_RETURN(data.dataset, cache.Open(TokenStore::Check::kBorders, vocab, paths));
  LogInfo(fmt::format("tokens      kept in {} ({})", cache.path(), ToString(data.dataset.store.bytes())));
  return data;
}

// All ranks call this at once: the first sends its token file, `mine`; ranks with a `file` write it there.
Status SendTokens(const Ranks& ranks, const MappedFile* mine, WritableFile* file) {
  Communicator& communicator = *ranks.communicator();
  int64_t size = mine ? mine->size().v : 0;
  TEMPER_RETURN_IF_ERROR(communicator.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0));
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(size, kPiece)));
  Status own;
  for (int64_t done = 0; done < size;) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kPiece, size - done)));
    if (mine && own.ok()) own = mine->ReadAt(done, piece);
    TEMPER_RETURN_IF_ERROR(communicator.Broadcast(piece, 0));
    if (file && own.ok()) own = file->Append(piece);
    done += static_cast<int64_t>(piece.size());
  }
  if (file && own.ok()) own = file->Sync();
  if (file && own.ok()) own = file->Close();
  return own;
}

// Opens the first rank's token file on all other ranks.
Status OpenOnAll(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks, Kept kept,
                 RunData* data) {
  TEMPER_ASSIGN_OR_RETURN(kept.key, ranks.FromFirst(kept.key));
  kept.paths.resize(request.sources.size());
  for (std::string& path : kept.paths) {
    TEMPER_ASSIGN_OR_RETURN(path, ranks.FromFirst(path));
  }
  const int64_t vocab = model.model().facts().vocab;
  const TokenCache cache(env, request.cache, kept.key);
  data->token_file = cache.path();
  // One rank of each machine looks for the file, or writes it; the others wait.
  const bool writes = !ranks.first() && ranks.communicator()->host_rank() == 0;
  Result<Dataset> own = Dataset();
  if (writes) own = cache.Open(TokenStore::Check::kAll, vocab, kept.paths);
  double missing = own.ok() ? 0 : 1;
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceSum({&missing, 1}));
  if (missing > 0) {
    std::unique_ptr<MappedFile> mine;
    Status status;
    if (ranks.first()) {
      auto opened = MappedFile::Open(cache.path());
      status = opened.status();
      if (opened.ok()) mine = *std::move(opened);
    }
    TEMPER_RETURN_IF_ERROR(ranks.Agree(status));
    bool sent = false;
    if (!own.ok()) {
      status = cache.Make([&](std::unique_ptr<WritableFile> file) {
        sent = true;
        return SendTokens(ranks, nullptr, file.get());
      });
    }
    if (!sent) {
      const Status received = SendTokens(ranks, mine.get(), nullptr);
      if (status.ok()) status = received;
    }
    TEMPER_RETURN_IF_ERROR(ranks.Agree(status));
    if (!own.ok()) own = cache.Open(TokenStore::Check::kAll, vocab, kept.paths);
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  if (!ranks.first() && !writes) own = cache.Open(TokenStore::Check::kBorders, vocab, kept.paths);
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  if (!ranks.first()) data->dataset = *std::move(own);
  return OkStatus();
}

}  // namespace

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request) {
  Kept kept;
  return Load(env, model, request, &kept);
}

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks) {
  if (ranks.alone()) return LoadRunData(env, model, request);
  TEMPER_CHECK(!request.cache.empty()) << "ranks share a file";
  Result<RunData> data = RunData();
  Kept kept;
  if (ranks.first()) {
    DataRequest for_all = request;
    for_all.threads *= ranks.communicator()->host_ranks();
    data = Load(env, model, for_all, &kept);
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(data.status()));
  TEMPER_RETURN_IF_ERROR(OpenOnAll(env, model, request, ranks, std::move(kept), &*data));
  return data;
}

namespace {

// "; 0.5 passes an epoch, 30.0 % of the tokens": of each of several sources.
std::vector<std::string> Shares(const Dataset& dataset, const DataSources& sources) {
  std::vector<std::string> texts(sources.size());
  if (sources.size() < 2) return texts;
  std::vector<double> tokens;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t end = i + 1 < sources.size() ? dataset.files[i + 1].first_sample : dataset.store.size();
    int64_t sum = 0;
    for (int64_t s = dataset.files[i].first_sample; s < end; ++s) sum += dataset.store.length(s);
    tokens.push_back(sources[i].passes * static_cast<double>(sum));
  }
  const double all = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const bool draws = !PassesOf(dataset, sources).empty();
  for (size_t i = 0; i < sources.size(); ++i) {
    const double passes = sources[i].passes;
    texts[i] = fmt::format("; {}{:.1f} % of the tokens",
                           draws ? fmt::format("{} {} an epoch, ", passes, passes == 1 ? "pass" : "passes") : "",
                           100 * tokens[i] / std::max(all, 1.0));
  }
  return texts;
}

}  // namespace

void DescribeData(const Dataset& dataset, const DataSources& sources, int64_t max_seq_len, int64_t positions) {
  const std::vector<std::string> shares = Shares(dataset, sources);
  for (size_t i = 0; i < dataset.files.size(); ++i) {
    const DataFile& file = dataset.files[i];
    LogInfo(fmt::format("data        {}: {} of {} (detected at {}){}", file.path, Counted(file.rows, "row"),
                        FormatName(file.format), file.format_place, shares[i]));
  }
  const DataStatistics& s = dataset.statistics;
  const auto percent = [](int64_t part, int64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  };
  LogInfo(fmt::format("            {}, {}, {} supervised ({:.1f} %), longest row {}", Counted(s.samples, "sample"),
                      Counted(s.tokens, "token"), s.supervised, percent(s.supervised, s.tokens), s.longest_row));
  if (s.weighted > 0) {
    LogInfo(fmt::format("            {} with a weight, {} to {}", Counted(s.weighted, "supervised token"),
                        WeightValue(s.least_weight), WeightValue(s.largest_weight)));
  }
  if (s.unknown.count > 0) {
    std::string characters;
    for (const auto& [character, n] : s.unknown.MostFrequent()) characters += " " + character;
    LogWarning(fmt::format("{} of {} {} {}, which stands for text without a token{}{}",
                           Counted(s.unknown.count, "token"), s.tokens, s.unknown.count == 1 ? "is" : "are",
                           s.unknown.token, characters.empty() ? "" : ":", characters));
  }
  if (s.bad_rows > 0)
    LogWarning(fmt::format("{} skipped ({:.2f} %); the first: {}", Counted(s.bad_rows, "bad row"),
                           percent(s.bad_rows, s.rows), s.problems.empty() ? "" : s.problems.front()));
  if (s.cut_rows > 0)
    LogWarning(
        fmt::format("cut at the end: {} ({:.2f} %) longer than max_seq_len, {} lost; {}", Counted(s.cut_rows, "row"),
                    percent(s.cut_rows, s.rows), Counted(s.cut_tokens, "token"),
                    max_seq_len < positions
                        ? fmt::format("raise --max_seq_len (the model has {} positions), or split them", positions)
                        : fmt::format("split them: the model has {} positions", positions)));
  if (s.dropped_rows > 0)
    LogWarning(fmt::format("dropped: {} ({:.2f} %) without supervised tokens (within max_seq_len)",
                           Counted(s.dropped_rows, "row"), percent(s.dropped_rows, s.rows)));
  const auto warn = [](const char* what, const Finding& finding, const char* noun, const char* which) {
    if (finding.count == 0) return;
    LogWarning(fmt::format("{}: {}{}; the first: {}", what, Counted(finding.count, noun), which, finding.first));
  };
  warn("not trained on", s.empty_answers, "empty answer", "");
  warn("not trained on", s.unprinted_turns, "turn", " whose tool calls or reasoning the chat template leaves out");
  warn("tools left out", s.unprinted_tools, "row", ", of whose tools or tool calls the chat template prints nothing");
  warn("without an end token", s.open_turns, "turn", ", which the chat template ends with text");
  if (s.samples > 0 && s.stopping_samples == 0)
    LogWarning("no sample ends with a supervised end token: the model will not learn to stop");
}

}  // namespace temper
