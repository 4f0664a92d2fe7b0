// RowTokenizer: rows that are judged as a whole, and pairs of answers.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "data/long_rows.h"
#include "data/row_tokenizer.h"
#include "format/quoted.h"

namespace temper {

Result<Sample> RowTokenizer::EncodeWhole(const Record& record) const {
  Sample sample;
  if (record.kind == RecordKind::kTokens) return TokenizeIds(record);
  EncodeOptions options{.unknown = tokenizer_.unknown() ? &sample.unknown : nullptr};
  if (record.kind == RecordKind::kText) {
    TEMPER_ASSIGN_OR_RETURN(sample.tokens, tokenizer_.Encode(record.text, options));
    return sample;
  }
  TEMPER_CHECK(record.kind == RecordKind::kMessages) << record.where << " is no sequence";
  TEMPER_RETURN_IF_ERROR(CheckTemplate(record));
  OrderedJson variables;
  const auto text = chat_template_->Render(record.messages, record.tools, /*add_generation_prompt=*/false,
                                           ChatOptionsOf(record, &variables));
  if (!text.ok()) return text.status().WithContext(record.where);
  options.add_special = false;
  TEMPER_ASSIGN_OR_RETURN(sample.tokens, tokenizer_.Encode(*text, options));
  return sample;
}

// transformers judges by the last token that is not padding.
void RowTokenizer::DropPadding(Sample& sample) const {
  while (!sample.tokens.empty() && options_.pad == sample.tokens.back()) sample.tokens.pop_back();
  sample.supervised.assign(sample.tokens.size(), 0);
}

// As TRL does: a text with the end token behind it, or the template's text of all messages.
Result<Sample> RowTokenizer::EncodeAnswer(const Record& record) const {
  if (record.kind == RecordKind::kPrompt && options_.instructions_as_conversations && record.is_instruction) {
    return EncodeWhole(AsConversation(record));
  }
  if (record.kind != RecordKind::kPrompt) return EncodeWhole(record);
  Record text{.kind = RecordKind::kText, .where = record.where};
  text.text = PromptText(record) + CompletionText(record);
  TEMPER_ASSIGN_OR_RETURN(Sample sample, EncodeWhole(text));
  if (sample.tokens.empty() || sample.tokens.back() != eos_) sample.tokens.push_back(eos_);
  return sample;
}

// Pairs that are too long together are left out: a cut answer is another one. (TRL looks at each alone.)
Status RowTokenizer::TokenizeRanked(const Record& record, std::vector<Sample>& samples,
                                    DataStatistics& statistics) const {
  Sample pair;
  int64_t length = 0;
  for (const Record& answer : record.answers) {
    TEMPER_ASSIGN_OR_RETURN(Sample sample, EncodeAnswer(answer));
    TEMPER_RETURN_IF_ERROR(CheckFront(sample.tokens, answer.kind, record.where));
    TEMPER_RETURN_IF_ERROR(CheckIds(sample.tokens, record.where));
    statistics.unknown.AddTexts(sample.unknown);
    DropPadding(sample);
    length += static_cast<int64_t>(sample.tokens.size());
    if (!pair.tokens.empty()) pair.parts = {pair.tokens.size()};
    if (sample.tokens.empty() || (!pair.tokens.empty() && pair.tokens == sample.tokens)) {
      ++statistics.dropped_rows;
      return OkStatus();
    }
    pair.tokens.insert(pair.tokens.end(), sample.tokens.begin(), sample.tokens.end());
    pair.unknown.insert(pair.unknown.end(), sample.unknown.begin(), sample.unknown.end());
  }
  statistics.longest_row = std::max(statistics.longest_row, length);
  if (length > options_.max_seq_len) {
    if (options_.long_rows == LongRows::kError) return TooLong(record.where, length, options_.max_seq_len);
    ++statistics.left_out_rows;
    return OkStatus();
  }
  pair.supervised.assign(pair.tokens.size(), 0);
  pair.values.margin = record.margin;
  Count(pair, statistics);
  statistics.supervised += 2;
  samples.push_back(std::move(pair));
  return OkStatus();
}

Status RowTokenizer::TokenizeWhole(const Record& record, std::vector<Sample>& samples,
                                   DataStatistics& statistics) const {
  TEMPER_ASSIGN_OR_RETURN(Sample sample, EncodeWhole(record));
  if (options_.classes != nullptr) {
    const auto label = options_.classes->Find(*record.label);
    if (!label) {
      return Corrupt(fmt::format(
          "{}: the label {} is none of the model's {} classes ({}), which come from its config.json or, without one "
          "there, "
          "from the training data: correct it, or leave the row out",
          record.where, Quoted(record.label->substr(0, 40)), options_.classes->size(), options_.classes->ToText()));
    }
    sample.values.label = *label;
  }
  statistics.unknown.AddTexts(sample.unknown);
  TEMPER_RETURN_IF_ERROR(CheckFront(sample.tokens, record.kind, record.where));
  TEMPER_RETURN_IF_ERROR(CheckIds(sample.tokens, record.where));
  const auto length = static_cast<int64_t>(sample.tokens.size());
  statistics.longest_row = std::max(statistics.longest_row, length);
  if (length > options_.max_seq_len) {
    TEMPER_ASSIGN_OR_RETURN(const bool kept, Shorten(record.where, length, sample, statistics));
    if (!kept) return OkStatus();
  }
  DropPadding(sample);
  if (sample.tokens.empty()) {
    ++statistics.dropped_rows;
    return OkStatus();
  }
  Count(sample, statistics);
  statistics.supervised += options_.classes != nullptr;
  samples.push_back(std::move(sample));
  return OkStatus();
}

namespace {

// Cuts `sample` at `length` tokens, and what behind the last supervised one is of no use then.
void CutAt(size_t length, Sample* sample) {
  if (sample->tokens.size() <= length) return;
  while (length > 0 && !sample->supervised[length - 1]) --length;
  sample->Resize(length);
}

}  // namespace

Status RowTokenizer::TokenizePair(const Record& record, std::vector<Sample>& samples,
                                  DataStatistics& statistics) const {
  DataStatistics of_answers;
  std::vector<Sample> answers;
  int64_t length = 0;  // of both, before they are cut
  for (const Record& answer : record.answers) {
    const size_t before = answers.size();
    of_answers.longest_row = 0;
    TEMPER_RETURN_IF_ERROR(Tokenize(answer, answers, of_answers));
    length += of_answers.longest_row;
    if (of_answers.left_out_rows > 0) break;
    if (answers.size() > before + 1) {
      return Unsupported(
          fmt::format("{}: the chat template needs several texts for one answer, which a pair cannot have: give the "
                      "turns before the last one as the prompt",
                      record.where));
    }
    if (answers.size() == before) break;  // nothing of it counts
  }
  of_answers.samples = of_answers.tokens = of_answers.supervised = of_answers.stopping_samples = 0;
  // A pair is one row.
  of_answers.dropped_rows = of_answers.cut_rows = of_answers.cut_tokens = of_answers.left_out_rows = 0;
  of_answers.longest_row = length;
  statistics.Add(of_answers);
  if (length > options_.max_seq_len) {
    if (options_.long_rows == LongRows::kError) return TooLong(record.where, length, options_.max_seq_len);
    if (options_.long_rows == LongRows::kDrop) {
      ++statistics.left_out_rows;
      return OkStatus();
    }
  }
  if (answers.size() == 2) {
    const auto most = static_cast<size_t>(options_.max_seq_len);
    const size_t first = answers[0].tokens.size(), second = answers[1].tokens.size();
    const size_t each = std::max(most / 2, most - std::min({first, second, most}));
    if (first + second > most) {
      for (Sample& answer : answers) CutAt(each, &answer);
    }
  }
  if (answers.size() < 2 || answers[0].tokens == answers[1].tokens || answers[0].tokens.empty() ||
      answers[1].tokens.empty()) {
    ++statistics.dropped_rows;
    return OkStatus();
  }
  for (const Sample& answer : answers) {
    if (answer.weights.empty()) continue;
    return Unsupported(record.where + ": weights of messages have no meaning in pairs: remove them");
  }
  if (length > options_.max_seq_len) {
    ++statistics.cut_rows;
    statistics.cut_tokens += length - static_cast<int64_t>(answers[0].tokens.size() + answers[1].tokens.size());
  }
  Sample pair = std::move(answers[0]);
  const Sample& rejected = answers[1];
  pair.parts = {pair.tokens.size()};
  pair.tokens.insert(pair.tokens.end(), rejected.tokens.begin(), rejected.tokens.end());
  pair.supervised.insert(pair.supervised.end(), rejected.supervised.begin(), rejected.supervised.end());
  pair.unknown.insert(pair.unknown.end(), rejected.unknown.begin(), rejected.unknown.end());
  Count(pair, statistics);
  samples.push_back(std::move(pair));
  return OkStatus();
}

}  // namespace temper
