#include "run/data_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/quantity.h"
#include "data/template_tokens.h"
#include "format/quoted.h"
#include "run/data_request.h"

namespace temper {

void DescribeTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::vector<std::string> missing = MarkersWithoutToken(chat_template, tokenizer);
  if (missing.empty()) return;
  const auto end = TurnEndToken(chat_template, tokenizer);
  LogWarning(fmt::format("{}: the tokenizer has no token {}, and reads {} as text{}", chat_template.where(),
                         fmt::join(missing, ", "), missing.size() == 1 ? "it" : "them",
                         end ? ""
                             : ", also where a turn ends; alpaca and zephyr end turns with the tokenizer's own end "
                               "token, or add_tokens gives "
                               "the model these"));
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

// "reasoning of 3 turns (the first: data.jsonl line 1, message 2)".
std::string Places(std::string_view what, const Finding& finding, const char* noun) {
  return fmt::format("{} of {} (the first: {})", what, Counted(finding.count, noun), finding.first);
}

// What turns say that count, and what messages of any role have. `turns`: those that say nothing else.
void WarnOfUnprintedFields(const FieldFindings& fields, const Finding& turns) {
  FieldFindings others = fields;
  std::vector<std::string> said, parts;
  const auto known = [&](const char* name, const char* shown, const char* noun, std::vector<std::string>& out) {
    const auto found = others.by_name.extract(name);
    if (!found.empty()) out.push_back(Places(shown, found.mapped(), noun));
  };
  known("reasoning", "reasoning", "turn", said);
  known("tool_calls", "tool calls", "turn", said);
  known("tools", "tools", "row", parts);
  if (!said.empty()) {
    const bool one = turns.count == 1;
    const std::string nothing = fmt::format("; {} that {} nothing else {} not trained on", Counted(turns.count, "turn"),
                                            one ? "says" : "say", one ? "is" : "are");
    LogWarning(fmt::format("left out of training by the chat template: {}{}", fmt::join(said, "; "),
                           turns.count > 0 ? nothing : ""));
  } else if (turns.count > 0) {
    LogWarning(fmt::format("not trained on: {} of which the chat template prints nothing; the first: {}",
                           Counted(turns.count, "turn"), turns.first));
  }
  const auto shown = others.MostFrequent();
  for (const auto& [name, finding] : shown) parts.push_back(Places(Quoted(name), finding, "message"));
  if (parts.empty()) return;
  const size_t more = others.by_name.size() - shown.size();
  LogWarning(fmt::format("not printed by the chat template: {}{}", fmt::join(parts, "; "),
                         more > 0 ? fmt::format("; and {} more", more) : ""));
}

// "fields that are not read: 'id' (3 rows), ...".
void DescribeUnreadFields(const FieldFindings& fields) {
  std::vector<std::string> parts;
  for (const auto& [name, finding] : fields.MostFrequent()) {
    parts.push_back(fmt::format("{} ({})", Quoted(name), Counted(finding.count, "row")));
  }
  if (parts.empty()) return;
  const size_t more = fields.by_name.size() - parts.size();
  LogInfo(fmt::format("            fields that are not read: {}{}", fmt::join(parts, ", "),
                      more > 0 ? fmt::format(" and {} more", more) : ""));
}

// A field that a row may lack is no mistake; one that no row has is, most likely, a wrong name.
void WarnOfAbsentFields(const DataStatistics& s) {
  for (const auto& [name, finding] : s.absent_fields.MostFrequent()) {
    if (finding.count < s.rows - s.bad_rows) continue;
    LogWarning(fmt::format("the row template prints {}, which no row has", Quoted(name)));
  }
}

// Rows of several answers may be longer than the model's positions without one of these being so.
void WarnOfLongParts(const TokenStore& store, int64_t positions) {
  int64_t longest = 0;
  for (int64_t s = 0; s < store.size(); ++s) {
    if (store.length(s) <= positions) continue;
    const TokenSample sample = store.sample(s);
    int64_t begin = 0;
    while (begin < sample.length()) {
      const int64_t end = sample.PartEnd(begin);
      if (begin > 0 || end < sample.length()) longest = std::max(longest, end - begin);
      begin = end;
    }
  }
  if (longest <= positions) return;
  LogWarning(
      fmt::format("the longest answer has {} tokens with its prompt, more than the model's {} positions: it was "
                  "not trained on longer documents",
                  longest, positions));
}

}  // namespace

void DescribeData(const Dataset& dataset, const DataSources& sources, int64_t max_seq_len, int64_t positions) {
  const std::vector<std::string> shares = Shares(dataset, sources);
  // A folder may have thousands.
  constexpr size_t kMostFiles = 20;
  const size_t shown = dataset.files.size() <= kMostFiles + 1 ? dataset.files.size() : kMostFiles;
  for (size_t i = 0; i < shown; ++i) {
    const DataFile& file = dataset.files[i];
    LogInfo(fmt::format("data        {}: {} of {} (detected at {}){}", file.path, Counted(file.rows, "row"),
                        FormatName(file.format), file.format_place, shares[i]));
  }
  const DataStatistics& s = dataset.statistics;
  if (shown < dataset.files.size()) {
    LogInfo(fmt::format("            and {} more files, to {}; {} in all", dataset.files.size() - shown,
                        dataset.files.back().path, Counted(s.rows, "row")));
  }
  // As a whole: no token is predicted.
  const bool judged = dataset.store.total_supervised() == 0;
  const auto percent = [](int64_t part, int64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  };
  LogInfo(fmt::format("            {}, {}, {} supervised ({:.1f} %), longest row {}", Counted(s.samples, "sample"),
                      Counted(s.tokens, "token"), s.supervised, percent(s.supervised, s.tokens), s.longest_row));
  if (s.weighted > 0) {
    LogInfo(fmt::format("            {} with a weight, {} to {}", Counted(s.weighted, "supervised token"),
                        WeightValue(s.least_weight), WeightValue(s.largest_weight)));
  }
  if (s.split_rows > 0) {
    LogInfo(fmt::format(
        "            {} {} {} samples, {:.1f} times the tokens ({} more): the chat template prints earlier turns "
        "otherwise, mostly without their reasoning, so each such turn is trained in a sample of its own. "
        "--reasoning_turns last makes one sample of each",
        Counted(s.split_rows, "conversation"), s.split_rows == 1 ? "becomes" : "become", s.split_samples,
        static_cast<double>(s.split_tokens) / static_cast<double>(std::max<int64_t>(s.unsplit_tokens, 1)),
        Counted(std::max<int64_t>(s.split_tokens - s.unsplit_tokens, 0), "token")));
  }
  DescribeUnreadFields(s.unread_fields);
  WarnOfAbsentFields(s);
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
  const std::string remedy =
      max_seq_len < positions
          ? fmt::format("raise --max_seq_len (the model has {} positions), or make these rows shorter", positions)
          : fmt::format("make these rows shorter: the model has {} positions", positions);
  if (s.cut_rows > 0) {
    LogWarning(fmt::format("cut: {} ({:.2f} %) longer than max_seq_len, {} lost; {}", Counted(s.cut_rows, "row"),
                           percent(s.cut_rows, s.rows), Counted(s.cut_tokens, "token"), remedy));
  }
  if (s.left_out_rows > 0) {
    LogWarning(fmt::format("left out: {} ({:.2f} %) longer than max_seq_len; {}", Counted(s.left_out_rows, "row"),
                           percent(s.left_out_rows, s.rows), remedy));
  }
  if (s.dropped_rows > 0) {
    LogWarning(fmt::format("dropped: {} ({:.2f} %) {}", Counted(s.dropped_rows, "row"), percent(s.dropped_rows, s.rows),
                           judged ? "with nothing to judge" : "without supervised tokens (within max_seq_len)"));
  }
  const auto warn = [](const char* what, const Finding& finding, const char* noun, const char* which) {
    if (finding.count == 0) return;
    LogWarning(fmt::format("{}: {}{}; the first: {}", what, Counted(finding.count, noun), which, finding.first));
  };
  warn("not trained on", s.empty_answers, "empty answer", "");
  WarnOfUnprintedFields(s.unprinted_fields, s.unprinted_turns);
  warn("without an end token", s.open_turns, "turn", ", which the chat template ends with text");
  if (max_seq_len > positions) WarnOfLongParts(dataset.store, positions);
  if (s.samples > 0 && s.stopping_samples == 0 && !judged)
    LogWarning("no sample ends with a supervised end token: the model will not learn to stop");
}

}  // namespace temper
