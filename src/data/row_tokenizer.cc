#include "data/row_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text_parts.h"
#include "data/long_rows.h"
#include "data/template/conversation.h"
#include "data/unprinted_fields.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr EncodeOptions kPlain = {.add_special = false};

std::string MessagePlace(const Record& record, size_t message) {
  return fmt::format("{}, message {}", record.where, message + 1);
}

}  // namespace

RowTokenizer::RowTokenizer(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                           const TokenizeOptions& options)
    : tokenizer_(tokenizer),
      parts_(tokenizer),
      chat_template_(chat_template),
      options_(options),
      vocab_size_(options.vocab_size > 0 ? options.vocab_size : tokenizer.vocab_size()) {}

Result<std::unique_ptr<RowTokenizer>> RowTokenizer::Create(const Tokenizer& tokenizer,
                                                           const ChatTemplate* chat_template,
                                                           const TokenizeOptions& options) {
  if (options.max_seq_len < 2) {
    return InvalidArgument(fmt::format(
        "max_seq_len is {}: a row needs at least 2 tokens, one as input and one to predict", options.max_seq_len));
  }
  const bool none = tokenizer.vocab_size() == 0;  // NoTokenizer: enough for rows of tokens, others get its error
  if (!tokenizer.eos() && !none) {
    return InvalidArgument(
        "the tokenizer has no EOS token, so the model could not learn to stop: set eos_token in "
        "tokenizer_config.json");
  }
  if (options.instructions_as_conversations && !chat_template) {
    return InvalidArgument("cannot turn instructions into conversations: the model has no chat template");
  }
  std::unique_ptr<RowTokenizer> out(new RowTokenizer(tokenizer, chat_template, options));
  if (none) return out;
  out->eos_ = *tokenizer.eos();
  if (chat_template) out->turn_end_ = Stripped(chat_template->TurnEnd());
  // Tokens that add_special puts before any text. Those that it
  // puts after (EOS for some tokenizers) are added elsewhere.
  TEMPER_ASSIGN_OR_RETURN(const auto bare, tokenizer.Encode("a", kPlain));
  TEMPER_ASSIGN_OR_RETURN(const auto framed, tokenizer.Encode("a"));
  const auto at = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  out->front_.assign(framed.begin(), at);
  return out;
}

bool RowTokenizer::EndsTurn(int32_t id) const {
  const auto& stops = tokenizer_.stop_ids();
  return id == eos_ || std::binary_search(stops.begin(), stops.end(), id);
}

bool RowTokenizer::IsWhiteSpace(int32_t id) const {
  return tokenizer_.Decode(std::span(&id, 1), /*skip_special=*/false).find_first_not_of(" \t\r\n") == std::string::npos;
}

// Of the supervised tokens that end at `end`: the last that is not white space, or the first.
int32_t RowTokenizer::LastWord(const Sample& sample, size_t end) const {
  size_t at = end - 1;
  while (at > 0 && sample.supervised[at - 1] && IsWhiteSpace(sample.tokens[at])) --at;
  return sample.tokens[at];
}

// Whether all spans of a message are only white space and what ends a turn.
bool RowTokenizer::SaysNothing(const RenderedChat& chat, size_t message) const {
  constexpr size_t kMostOfEnds = 256;  // bytes; what ends a turn is shorter
  for (size_t i = 0; i < chat.assistant.size(); ++i) {
    if (chat.messages[i] != message) continue;
    const TextSpan& span = chat.assistant[i];
    const std::string_view text = std::string_view(chat.text).substr(span.begin, span.end - span.begin);
    if (Stripped(text) == turn_end_) continue;
    if (text.size() > kMostOfEnds) return false;
    const auto ids = tokenizer_.Encode(text, kPlain);
    const auto is_silent = [&](int32_t id) { return tokenizer_.IsSpecial(id) || EndsTurn(id) || IsWhiteSpace(id); };
    if (!ids.ok() || !std::all_of(ids->begin(), ids->end(), is_silent)) return false;
  }
  return true;
}

Result<Sample> RowTokenizer::TokenizePrompt(const Record& record, DataStatistics& statistics) const {
  Sample sample{.tokens = front_, .supervised = std::vector<uint8_t>(front_.size(), 0)};
  const std::string prompt = PromptText(record), completion = CompletionText(record);
  TEMPER_RETURN_IF_ERROR(parts_.Encode({{prompt, false}, {completion, true}}, sample, statistics));
  const bool has_eos = !completion.empty() && !sample.tokens.empty() && EndsTurn(sample.tokens.back());
  if (!has_eos) {
    sample.tokens.push_back(eos_);
    sample.supervised.push_back(1);
  }
  return sample;
}

Status RowTokenizer::CheckTemplate(const Record& record) const {
  if (!chat_template_) {
    return NotFound(fmt::format(
        "{}: messages need a chat template, and the model has none: choose one with --chat_template, a file "
        "or one of {} (alpaca works with every tokenizer), or use prompt/completion rows",
        record.where, KnownTemplateNames()));
  }
  return chat_template_->CheckRoles(record.messages).WithContext(record.where);
}

ChatOptions RowTokenizer::ChatOptionsOf(const Record& record, OrderedJson* variables) const {
  ChatOptions options = options_.chat;
  if (record.template_variables.is_null()) return options;
  *variables = options.variables ? *options.variables : OrderedJson::object();
  variables->update(record.template_variables);
  options.variables = variables;
  return options;
}

Status RowTokenizer::TokenizeMessages(const Record& record, std::vector<Sample>& samples,
                                      DataStatistics& statistics) const {
  TEMPER_RETURN_IF_ERROR(CheckTemplate(record));
  std::optional<OrderedJson> without_empty;
  for (size_t i = 0; i < record.messages.size() && !options_.train_on_prompt; ++i) {
    if (!IsSupervised(record.messages[i]) || !IsEmpty(record.messages[i])) continue;
    if (!without_empty) without_empty = record.messages;
    (*without_empty)[i]["weight"] = 0;
    statistics.empty_answers.Add(MessagePlace(record, i));
  }
  const OrderedJson& messages = without_empty ? *without_empty : record.messages;
  std::vector<RenderedChat> chats;
  OrderedJson variables;
  const ChatOptions options = ChatOptionsOf(record, &variables);
  if (std::any_of(messages.begin(), messages.end(), IsSupervised)) {
    // Turns beyond max_seq_len would be cut off, but finding their spans costs the
    // most. Prompts grow from turn to turn, so they are measured only now and then:
    // a prompt less than a quarter longer than one that fits is assumed to fit.
    ChatOptions bounded = options;
    size_t fits = static_cast<size_t>(options_.max_seq_len);  // bytes; no token is shorter than one
    bool cut = false;
    bounded.is_beyond = [&](std::string_view prompt) {
      if (prompt.size() < fits + fits / 4) return false;
      const auto ids = tokenizer_.Encode(prompt, kPlain);
      const bool beyond = ids.ok() && static_cast<int64_t>(ids->size()) >= options_.max_seq_len;
      if (!beyond) fits = prompt.size();
      // A prompt that is cut leaves room for its answer: then the turns behind it are beyond.
      return options_.long_rows == LongRows::kProportional ? std::exchange(cut, beyond) : beyond;
    };
    auto rendered = chat_template_->RenderWithSpans(messages, record.tools, bounded);
    if (!rendered.ok()) return rendered.status().WithContext(record.where);
    chats = *std::move(rendered);
    // If everything is supervised, the last text has it all; the others would repeat it.
    if (options_.train_on_prompt && !chats.empty()) chats.erase(chats.begin(), chats.end() - 1);
  }
  // No turn that is printed in time counts by itself.
  if (chats.empty() && options_.train_on_prompt) {
    auto text = chat_template_->Render(record.messages, record.tools, /*add_generation_prompt=*/false, options);
    if (!text.ok()) return text.status().WithContext(record.where);
    chats.push_back({.text = *std::move(text)});
  } else if (chats.empty()) {
    ++statistics.dropped_rows;
  }
  if (!chats.empty()) {
    for (const UnprintedField& field :
         FindUnprintedFields(*chat_template_, messages, record.tools, options, chats, options_.train_on_prompt)) {
      statistics.unprinted_fields.Add(field.name, field.message ? MessagePlace(record, *field.message) : record.where);
    }
  }
  const size_t first = samples.size();
  int64_t last_length = 0;
  for (const RenderedChat& chat : chats) {
    TEMPER_ASSIGN_OR_RETURN(Sample sample, TokenizeChat(record, chat, statistics));
    TEMPER_ASSIGN_OR_RETURN(const auto beyond, tokenizer_.Encode(chat.beyond, kPlain));
    last_length = static_cast<int64_t>(sample.tokens.size() + beyond.size());
    TEMPER_RETURN_IF_ERROR(Finish(record, std::move(sample), static_cast<int64_t>(beyond.size()), samples, statistics));
  }
  if (samples.size() > first + 1) {
    ++statistics.split_rows;
    statistics.split_samples += static_cast<int64_t>(samples.size() - first);
    for (size_t i = first; i < samples.size(); ++i) {
      statistics.split_tokens += static_cast<int64_t>(samples[i].tokens.size());
    }
    statistics.unsplit_tokens += std::min(last_length, options_.max_seq_len);
  }
  return OkStatus();
}

Result<Sample> RowTokenizer::TokenizeChat(const Record& record, const RenderedChat& chat,
                                          DataStatistics& statistics) const {
  const std::string_view text = chat.text;
  std::vector<PartEncoder::Part> parts;
  size_t at = 0;
  for (size_t i = 0; i < chat.assistant.size(); ++i) {
    const TextSpan& span = chat.assistant[i];
    const size_t m = chat.messages[i];
    const bool printed = !HasNoText(record.messages[m]) || !SaysNothing(chat, m);
    const bool first = i == 0 || chat.messages[i - 1] != m;
    if (first && !printed && !options_.train_on_prompt) statistics.unprinted_turns.Add(MessagePlace(record, m));
    parts.push_back({text.substr(at, span.begin - at), false});
    parts.push_back({text.substr(span.begin, span.end - span.begin), printed, WeightOf(record.messages[m])});
    at = span.end;
  }
  parts.push_back({text.substr(at), false});
  Sample sample;
  TEMPER_RETURN_IF_ERROR(parts_.Encode(parts, sample, statistics));
  EndTurns(sample, record, statistics);
  return sample;
}

void RowTokenizer::EndTurns(Sample& sample, const Record& record, DataStatistics& statistics) const {
  // {% generation %} blocks may leave out the token that ends the turn: the model must learn it all the same. Or they
  // may include the line end after it: then the turn already has its end.
  std::optional<size_t> last;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (!sample.supervised[i] && i > 0 && sample.supervised[i - 1] && EndsTurn(sample.tokens[i]) &&
        !EndsTurn(LastWord(sample, i))) {
      sample.supervised[i] = 1;
      if (!sample.weights.empty()) sample.weights[i] = sample.weights[i - 1];
    }
    if (sample.supervised[i]) last = i;
  }
  if (!last) return;
  for (size_t i = 0; i <= *last; ++i) {
    const bool ends = sample.supervised[i] && (i == *last || !sample.supervised[i + 1]);
    const int32_t word = ends ? LastWord(sample, i + 1) : 0;
    if (ends && !EndsTurn(word) && !tokenizer_.IsSpecial(word) && record.kind == RecordKind::kMessages)
      statistics.open_turns.Add(record.where);
  }
  sample.Resize(*last + 1);
  const int32_t ending = LastWord(sample, sample.tokens.size());
  if (!EndsTurn(ending) && !tokenizer_.IsSpecial(ending)) {
    sample.tokens.push_back(eos_);
    sample.supervised.push_back(1);
    if (!sample.weights.empty()) sample.weights.push_back(sample.weights.back());
  }
}

Status RowTokenizer::TokenizeFields(const Record& record, std::vector<Sample>& samples,
                                    DataStatistics& statistics) const {
  TEMPER_CHECK(options_.row_template != nullptr) << record.where << " needs a row template";
  OrderedJson context = record.fields;
  const auto token = [&](const char* name, std::optional<int32_t> id) {
    if (id && !context.contains(name)) context[name] = tokenizer_.IdToToken(*id);
  };
  token("bos_token", tokenizer_.bos());
  token("eos_token", tokenizer_.eos());
  auto rendered = options_.row_template->RenderWithGenerations(
      context, {.now = options_.chat.today, .limits = options_.chat.limits});
  if (!rendered.ok()) return rendered.status().WithContext(record.where);
  if (rendered->generation_lost) {
    return Unsupported(fmt::format(
        "{}: {}: a {{% generation %}} block in a macro, a filter or a set block cannot be found in the text: "
        "put it outside",
        record.where, options_.row_template->where()));
  }
  for (const std::string& name : rendered->undefined) statistics.absent_fields.Add(name, record.where);
  if (IsBlank(rendered->text)) {
    ++statistics.dropped_rows;
    return OkStatus();
  }
  if (!options_.row_template->has_generation_blocks()) {
    Record text{.kind = RecordKind::kText, .where = record.where};
    text.text = std::move(rendered->text);
    return TokenizeText(text, samples, statistics);
  }
  const std::string_view text = rendered->text;
  std::vector<PartEncoder::Part> parts;
  size_t at = 0;
  for (const TextSpan& span : rendered->generations) {
    if (span.begin < at || span.end <= span.begin) continue;  // a block in a block, or an empty one
    parts.push_back({text.substr(at, span.begin - at), false});
    parts.push_back({text.substr(span.begin, span.end - span.begin), true});
    at = span.end;
  }
  parts.push_back({text.substr(at), false});
  Sample sample{.tokens = front_, .supervised = std::vector<uint8_t>(front_.size(), 0)};
  TEMPER_RETURN_IF_ERROR(parts_.Encode(parts, sample, statistics));
  EndTurns(sample, record, statistics);
  return Finish(record, std::move(sample), /*beyond=*/0, samples, statistics);
}

Result<Sample> RowTokenizer::TokenizeIds(const Record& record) const {
  Sample sample;
  for (size_t i = 0; i < record.input_ids.size(); ++i) {
    if (record.input_ids[i] >= vocab_size_) {
      return Corrupt(
          fmt::format("{}: input_ids[{}] is {}, but the model has {} tokens: these ids are of another "
                      "tokenizer",
                      record.where, i, record.input_ids[i], vocab_size_));
    }
    sample.tokens.push_back(record.input_ids[i]);
    sample.supervised.push_back(record.labels[i] >= 0);
  }
  return sample;
}

void RowTokenizer::Count(const Sample& sample, DataStatistics& statistics) const {
  bool stops = false;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (!sample.supervised[i]) continue;
    ++statistics.supervised;
    if (!sample.weights.empty() && sample.weights[i] != kUnitWeight) {
      ++statistics.weighted;
      statistics.least_weight = std::min(statistics.least_weight, sample.weights[i]);
      statistics.largest_weight = std::max(statistics.largest_weight, sample.weights[i]);
    }
    stops |= EndsTurn(sample.tokens[i]);
  }
  ++statistics.samples;
  statistics.tokens += static_cast<int64_t>(sample.tokens.size());
  statistics.stopping_samples += stops;
  if (!sample.parts.empty()) return;  // the tokens of each part were counted before
  if (const auto unknown = tokenizer_.unknown()) {
    statistics.unknown.token = tokenizer_.IdToToken(*unknown);
    statistics.unknown.count += static_cast<int64_t>(CountUnknown(sample.tokens));
  }
}

size_t RowTokenizer::CountUnknown(std::span<const int32_t> tokens) const {
  const auto unknown = tokenizer_.unknown();
  return unknown ? static_cast<size_t>(std::count(tokens.begin(), tokens.end(), *unknown)) : 0;
}

Status RowTokenizer::CheckFront(std::span<const int32_t> whole, RecordKind kind, const std::string& where) const {
  const auto bos = tokenizer_.bos();
  if (!bos || whole.size() < 2 || whole[0] != *bos || whole[1] != *bos) return OkStatus();
  // If one token serves as both (OPT), an empty row is BOS EOS, and a row of ids may do this on purpose.
  if (*bos == eos_ && (whole.size() == 2 || kind == RecordKind::kTokens)) return OkStatus();
  return Corrupt(
      fmt::format("{}: begins with BOS twice. The tokenizer adds {} itself: remove it from the text "
                  "(or one of the two from the chat template)",
                  where, tokenizer_.IdToToken(*bos)));
}

// A tokenizer may have tokens that its model lacks, such as the [PAD] of many Llamas.
Status RowTokenizer::CheckIds(std::span<const int32_t> tokens, const std::string& where) const {
  const auto beyond = std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) { return id >= vocab_size_; });
  if (beyond == tokens.end()) return OkStatus();
  return Corrupt(fmt::format(
      "{}: has the token {} ({}), but the model has embeddings for only {}: remove it from the text, or use "
      "the tokenizer that the model was trained with",
      where, *beyond, Quoted(tokenizer_.IdToToken(*beyond)), vocab_size_));
}

namespace {

// Multiplies the weights of turns by that of their row.
Status ScaleWeights(const Record& record, Sample& sample) {
  if (record.weight == kUnitWeight) return OkStatus();
  sample.weights.resize(sample.tokens.size(), kUnitWeight);
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (!sample.supervised[i]) continue;
    TEMPER_ASSIGN_OR_RETURN(sample.weights[i],
                            ToTokenWeight(WeightValue(sample.weights[i]) * WeightValue(record.weight),
                                          record.where + ": the weight of the row times its turn's"));
    sample.supervised[i] = sample.weights[i] > 0;
  }
  return OkStatus();
}

}  // namespace

// `length`: of the row, with what is in no sample.
Result<bool> RowTokenizer::Shorten(const std::string& where, int64_t length, Sample& sample,
                                   DataStatistics& statistics) const {
  if (options_.long_rows == LongRows::kError) return TooLong(where, length, options_.max_seq_len);
  if (options_.long_rows == LongRows::kDrop) {
    ++statistics.left_out_rows;
    return false;
  }
  if (options_.long_rows == LongRows::kProportional) {
    CutInProportion(options_.max_seq_len, sample);
  } else {
    sample.Resize(std::min(sample.tokens.size(), static_cast<size_t>(options_.max_seq_len)));
  }
  ++statistics.cut_rows;
  statistics.cut_tokens += length - options_.max_seq_len;
  return true;
}

// For all rows except texts: masks the first token, cuts at max_seq_len, applies the row's weight, drops the tail.
// `beyond`: number of the row's further tokens that are in no sample.
Status RowTokenizer::Finish(const Record& record, Sample sample, int64_t beyond, std::vector<Sample>& samples,
                            DataStatistics& statistics) const {
  TEMPER_RETURN_IF_ERROR(CheckFront(sample.tokens, record.kind, record.where));
  TEMPER_RETURN_IF_ERROR(CheckIds(sample.tokens, record.where));
  sample.Resize(sample.tokens.size());
  const int64_t length = static_cast<int64_t>(sample.tokens.size()) + beyond;
  statistics.longest_row = std::max(statistics.longest_row, length);
  if (length > options_.max_seq_len) {
    TEMPER_ASSIGN_OR_RETURN(const bool kept, Shorten(record.where, length, sample, statistics));
    if (!kept) return OkStatus();
  }
  if (options_.train_on_prompt && record.kind != RecordKind::kTokens) {
    std::fill(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
  }
  if (!sample.supervised.empty()) sample.supervised[0] = 0;
  TEMPER_RETURN_IF_ERROR(ScaleWeights(record, sample));
  sample.values.desirable = record.desirable ? 1 : 0;
  size_t kept = sample.tokens.size();
  while (kept > 0 && !sample.supervised[kept - 1]) --kept;
  sample.Resize(kept);
  if (sample.tokens.empty()) {
    ++statistics.dropped_rows;
    return OkStatus();
  }
  Count(sample, statistics);
  samples.push_back(std::move(sample));
  return OkStatus();
}

Status RowTokenizer::Tokenize(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const {
  for (const std::string& field : record.unread) statistics.unread_fields.Add(field, record.where);
  if (record.weight == 0) {
    ++statistics.dropped_rows;
    return OkStatus();
  }
  if (const RowFacts& rows = FactsOf(options_.use); rows.judged) {
    return rows.two_answers ? TokenizeRanked(record, samples, statistics) : TokenizeWhole(record, samples, statistics);
  }
  switch (record.kind) {
    case RecordKind::kText:
      return TokenizeText(record, samples, statistics);
    case RecordKind::kFields:
      return TokenizeFields(record, samples, statistics);
    case RecordKind::kMessages:
      return TokenizeMessages(record, samples, statistics);
    case RecordKind::kPair:
      return TokenizePair(record, samples, statistics);
    case RecordKind::kTokens: {
      TEMPER_ASSIGN_OR_RETURN(Sample sample, TokenizeIds(record));
      return Finish(record, std::move(sample), /*beyond=*/0, samples, statistics);
    }
    case RecordKind::kPrompt:
      break;
  }
  if (options_.instructions_as_conversations && record.is_instruction) {
    return TokenizeMessages(AsConversation(record), samples, statistics);
  }
  if (!options_.train_on_prompt && Stripped(record.completion).empty()) {
    statistics.empty_answers.Add(record.where);
    ++statistics.dropped_rows;
    return OkStatus();
  }
  TEMPER_ASSIGN_OR_RETURN(Sample sample, TokenizePrompt(record, statistics));
  return Finish(record, std::move(sample), /*beyond=*/0, samples, statistics);
}

}  // namespace temper
