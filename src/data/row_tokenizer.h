// RowTokenizer: turns a record into samples: tokens, and for each whether predicting it is part of the loss.
//
// Training must see what inference will see, so the tokens of a prompt are those of the prompt encoded alone, from
// which generation starts. If prompt and completion encoded together begin with them (nearly always), that encoding is
// used; if a token would cross the border ("un|able"), the completion is encoded separately after the prompt. The same
// holds at every border in a conversation between the template's text and the assistant's. A border after a special
// token is exact by itself: tokenizers never merge across one.
//
//   prompt/completion   [BOS, if the tokenizer adds it] prompt COMPLETION EOS
//   messages            the template's text, nothing added in front; ASSISTANT SPANS with the token that ends the turn,
//                       EOS if the last span ends without one (white space aside). One sample per text that the
//                       template needs: templates that rewrite earlier turns need several (chat_template.h),
//                       unless ChatOptions::one_text
//   text                [BOS] TEXT EOS, cut into windows of max_seq_len that overlap by one token, so that every
//                       token is predicted exactly once
//   tokens              as they are
//   pair                two samples of the above, in one: its parts. If they are longer than max_seq_len together, the
//                       longer one is cut to what the other leaves, or both to half of it. Equal answers are dropped
//   judged as a whole   RowFacts::judged: a text as the tokenizer encodes it, or the template's text of all
//                       messages, or tokens. Nothing is supervised; it has a class
//   fields              what the row template makes of them: without {% generation %} blocks as a text; else
//                       [BOS] the template's text, BLOCKS with EOS if the last ends without one
//
// Text in capitals is supervised; with train_on_prompt all text is. Tokens after the last supervised one do not affect
// the loss and are dropped. Text of weight 0 is not supervised, nor are empty answers. Rows longer than max_seq_len are
// cut at the end, or as TokenizeOptions::long_rows says; a row with nothing supervised left is dropped; all are
// counted. What a text file holds is split in any case.
//
// Immutable after Create; Tokenize may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/data_statistics.h"
#include "data/part_encoder.h"
#include "data/record.h"
#include "data/sample.h"
#include "data/template/chat_template.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "format/class_names.h"
#include "format/long_rows.h"
#include "objective/row_use.h"

namespace temper {

struct TokenizeOptions {
  int64_t max_seq_len = 2048;
  bool train_on_prompt = false;
  // Question/answer and Alpaca rows go through the chat template as one user turn and its answer.
  bool instructions_as_conversations = false;
  const Template* row_template = nullptr;  // for rows of RecordFormat::kFields; must outlive the tokenizer
  ChatOptions chat;                        // the template's input besides the messages
  LongRows long_rows = LongRows::kSplit;
  RowUse use = RowUse::kAnswers;
  const ClassNames* classes = nullptr;  // of labels (RowUse::kLabels); must outlive the tokenizer
  std::optional<int32_t> pad;           // judged sequences do not end with it
  int64_t vocab_size = 0;               // number of tokens with embeddings in the model; 0: all of the tokenizer's

  // What samples have beside their tokens.
  SectionSet sections() const {
    const std::optional<Section> given = FactsOf(use).gives;
    return given ? SectionSet{*given} : SectionSet();
  }
};

class RowTokenizer {
 public:
  // `chat_template` may be null: records of messages are then an error. Both must outlive this. Errors: a max_seq_len
  // below 2, a tokenizer without EOS.
  static Result<std::unique_ptr<RowTokenizer>> Create(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                                      const TokenizeOptions& options);

  // Appends the record's samples (none, one, or many for a text) and counts them. Errors name the record's place.
  Status Tokenize(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;

  // The tokens of a piece of a text, and the text of each unknown one.
  struct Piece {
    std::vector<int32_t> ids;
    std::vector<std::string> unknown;
  };
  // `continues`: the piece begins at a cut (Tokenizer::FindCut), not where the text does. Any thread.
  Result<Piece> EncodePiece(std::string_view piece, bool continues) const;

  // A text of which only a part has been added. One thread at a time.
  struct OpenText {
    std::string where;  // for errors
    TokenWeight weight = kUnitWeight;
    std::vector<int32_t> tokens;       // the last ones, in no sample yet or only as the last of one
    std::vector<std::string> unknown;  // of these
    int64_t length = 0;                // of all tokens so far, without those that the tokenizer puts in front
  };
  // Add appends to `samples`, and counts, those that `piece` completes; End does so with the rest.
  Status Add(const Piece& piece, OpenText& text, std::vector<Sample>& samples, DataStatistics& statistics) const;
  void End(OpenText& text, std::vector<Sample>& samples, DataStatistics& statistics) const;

 private:
  RowTokenizer(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const TokenizeOptions& options);

  Result<Sample> TokenizePrompt(const Record& record, DataStatistics& statistics) const;
  Status TokenizeMessages(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  Result<Sample> TokenizeChat(const Record& record, const RenderedChat& chat, DataStatistics& statistics) const;
  Status TokenizeText(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  Status AddCut(int64_t length, Piece piece, OpenText text, std::vector<Sample>& samples,
                DataStatistics& statistics) const;
  Status TokenizeFields(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  // What the template gets for a row; `variables` holds the row's own.
  ChatOptions ChatOptionsOf(const Record& record, OrderedJson* variables) const;
  Result<Sample> EncodeWhole(const Record& record) const;
  Status CheckTemplate(const Record& record) const;
  // `record`'s tokens, without padding at their end.
  Result<Sample> EncodeAnswer(const Record& record) const;
  Status TokenizeRanked(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  void DropPadding(Sample& sample) const;
  Status TokenizeWhole(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  Status TokenizePair(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  // Adds what ends the last turn, if it is not there, and drops what follows.
  void EndTurns(Sample& sample, const Record& record, DataStatistics& statistics) const;
  Result<Sample> TokenizeIds(const Record& record) const;
  void AddWindow(size_t begin, size_t size, size_t unknown_before, const OpenText& text, std::vector<Sample>& samples,
                 DataStatistics& statistics) const;
  size_t CountUnknown(std::span<const int32_t> tokens) const;
  // `whole`: of a text or a row, all tokens.
  Status CheckFront(std::span<const int32_t> whole, RecordKind kind, const std::string& where) const;
  Status CheckIds(std::span<const int32_t> tokens, const std::string& where) const;
  Status Finish(const Record& record, Sample sample, int64_t beyond, std::vector<Sample>& samples,
                DataStatistics& statistics) const;
  // Makes a row fit that is longer than max_seq_len. False: it is left out.
  Result<bool> Shorten(const std::string& where, int64_t length, Sample& sample, DataStatistics& statistics) const;
  void Count(const Sample& sample, DataStatistics& statistics) const;
  bool SaysNothing(const RenderedChat& chat, size_t message) const;
  bool EndsTurn(int32_t id) const;
  bool IsWhiteSpace(int32_t id) const;
  int32_t LastWord(const Sample& sample, size_t end) const;

  const Tokenizer& tokenizer_;
  const PartEncoder parts_;
  const ChatTemplate* const chat_template_;
  const TokenizeOptions options_;
  const int64_t vocab_size_;
  std::vector<int32_t> front_;  // the tokens that the tokenizer puts before a text
  int32_t eos_ = 0;
  std::string turn_end_;  // what the template prints behind an answer, without white space around it
};

}  // namespace temper
