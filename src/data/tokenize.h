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
//                       template needs: templates that rewrite earlier turns need several (chat_template.h)
//   text                [BOS] TEXT EOS, cut into windows of max_seq_len that overlap by one token, so that every
//                       token is predicted exactly once
//   tokens              as they are
//
// Text in capitals is supervised; with train_on_prompt all text is. Tokens after the last supervised one do not affect
// the loss and are dropped. Text of weight 0 is not supervised, nor are empty answers. Rows longer than max_seq_len are
// cut at the end; a row with nothing supervised left is dropped; both are counted.
//
// Immutable after Create; Tokenize may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/record.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/unknown_tokens.h"

namespace temper {

struct TokenizeOptions {
  int64_t max_seq_len = 2048;
  bool train_on_prompt = false;
  // Question/answer and Alpaca rows go through the chat template as one user turn and its answer.
  bool instructions_as_conversations = false;
  ChatOptions chat;        // the template's input besides the messages
  int64_t vocab_size = 0;  // number of tokens with embeddings in the model; 0: all of the tokenizer's
};

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> supervised;  // as many; [0] is always 0
  // How much each supervised token counts, never 0; as many, or empty if all count 1.
  std::vector<TokenWeight> weights;

  void Resize(size_t n);  // added tokens are not supervised
};

// Something about the data that its user should know before training: how often, and where first.
struct Finding {
  int64_t count = 0;
  std::string first;  // "data.jsonl line 12, message 2"

  void Add(const std::string& where) { Add({1, where}); }
  void Add(const Finding& other);
};

// Statistics of the rows; the caller prints them.
struct DataStatistics {
  int64_t rows = 0;           // read, good or bad
  int64_t bad_rows = 0;       // skipped (skip_bad_rows)
  int64_t cut_rows = 0;       // longer than max_seq_len, cut at the end
  int64_t cut_tokens = 0;     // lost by that
  int64_t dropped_rows = 0;   // nothing supervised (left)
  int64_t split_borders = 0;  // borders that a token would have crossed
  int64_t longest_row = 0;    // tokens, before cutting (plain text is never cut)
  int64_t samples = 0;
  int64_t tokens = 0;      // in the samples
  int64_t supervised = 0;  // of those
  int64_t weighted = 0;    // of those: with a weight other than 1, and these weights' bounds
  TokenWeight least_weight = kLargestWeight, largest_weight = 0;
  // Samples with a supervised token that ends generation. None at all: the model will not learn to stop.
  int64_t stopping_samples = 0;
  Finding empty_answers;              // not supervised, nor is the token that ends the turn
  Finding unprinted_turns;            // neither: the template prints nothing of their tool calls or reasoning
  Finding unprinted_tools;            // rows with a tool, or a call of one, that the template leaves out
  Finding open_turns;                 // the template ends them with text that is not one special token
  std::vector<std::string> problems;  // of the first bad rows
  UnknownTokens unknown;

  void Add(const DataStatistics& other);
};

class RowTokenizer {
 public:
  // `chat_template` may be null: records of messages are then an error. Both must outlive this. Errors: a max_seq_len
  // below 2, a tokenizer without EOS.
  static Result<std::unique_ptr<RowTokenizer>> Create(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                                                      const TokenizeOptions& options);

  // Appends the record's samples (none, one, or many for a text) and counts them. Errors name the record's place.
  Status Tokenize(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;

 private:
  // A stretch of text, whether it is supervised, and its weight.
  struct Part {
    std::string_view text;
    bool supervised = false;
    TokenWeight weight = kUnitWeight;
  };

  RowTokenizer(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const TokenizeOptions& options);

  Status EncodeParts(const std::vector<Part>& parts, Sample& sample, DataStatistics& statistics) const;
  Result<std::vector<int32_t>> EncodeAfter(const std::string& context, std::string_view text,
                                           std::string* unknown) const;
  Result<Sample> TokenizePrompt(const Record& record, DataStatistics& statistics) const;
  Status TokenizeMessages(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  Result<Sample> TokenizeChat(const Record& record, const RenderedChat& chat, DataStatistics& statistics) const;
  Status TokenizeText(const Record& record, std::vector<Sample>& samples, DataStatistics& statistics) const;
  Result<Sample> TokenizeIds(const Record& record) const;
  Status CheckFront(const Record& record, const Sample& sample) const;
  Status CheckIds(const Record& record, const Sample& sample) const;
  Status Finish(const Record& record, Sample sample, int64_t beyond, std::vector<Sample>& samples,
                DataStatistics& statistics) const;
  void Count(const Sample& sample, DataStatistics& statistics) const;
  bool SaysNothing(const RenderedChat& chat, size_t message) const;
  bool EndsTurn(int32_t id) const;
  bool IsWhiteSpace(int32_t id) const;
  int32_t LastWord(const Sample& sample, size_t end) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* const chat_template_;
  const TokenizeOptions options_;
  const int64_t vocab_size_;
  std::vector<int32_t> front_;  // the tokens that the tokenizer puts before a text
  int32_t eos_ = 0;
  std::string turn_end_;  // what the template prints behind an answer, without white space around it
};

}  // namespace temper
