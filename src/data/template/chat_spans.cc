// Finds the bytes of a rendered conversation that the assistant
// wrote. The steps, for each assistant turn that is supervised:
//
// 1. F, the conversation up to and with the turn, is a text in which the turn is the last: the model wrote it
//    with nothing after it. Its own span ends at the end of F, without the white space after the end-of-turn token.
// 2. If the template has {% generation %} blocks, the blocks of the turn are its spans, white space and all. A block
//    that ends the conversation (the eos_token of Phi-3) belongs to the turn that is the last of a text. Else the span
//    begins
//    a. at |P|, where the prompt P (the messages before, with add_generation_prompt) is a prefix of F;
//    b. else where what the template prints begins to depend on what the assistant says, found by rendering two other
//       texts in its place that differ from the first character on, and in place of its tool calls and reasoning, too:
//       - in F, where the messages before it look the same in F as without the turn (DeepSeek-R1's prompt adds a
//         <think> that its turns do not have; Qwen 3's closes it where its turn prints reasoning). What F has ahead of
//         that and P lacks counts, too (Command R7B: <|START_RESPONSE|>);
//       - after P, where they do not (Mistral puts the system message into the last user turn; gpt-oss drops thoughts
//         once an answer follows): the text is then P and the turn, as generation from P gives it. The turn begins
//         behind P's header if F has that (gpt-oss: a channel follows it).
//       A marker or word that F and another text only begin alike is the turn's as a whole (word_start.h).
//    A header of the next turn that the template prints behind the turn's eos_token is dropped.
// 3. From the last turn backwards: a text holds every earlier turn whose own text, or that text without the eos_token
//    that some templates append to a finished conversation, is a prefix of it. Turns that no text holds keep their own.
//    A block of an earlier turn ends where it ends in that text: gpt-oss prints another token than eos_token there.
// 4. With ChatOptions::one_text, step 3 makes the text of the last turn only, which is then that of the whole
//    conversation: a turn that it does not hold has as its span what the text prints of its words (whole_text.h), or
//    the blocks there.
//
// So a turn costs two renderings of everything before it, and a conversation takes time in proportion
// to the square of its length (10 s at kMaxMessages): only rendering shows what a template prints.
// The caller limits this by saying which turns it cannot use (ChatOptions::is_beyond). Texts that a
// later one holds are dropped, so memory is that of the returned texts.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/text_parts.h"
#include "base/units.h"
#include "data/template/chat_renderer.h"
#include "data/template/unicode.h"
#include "data/template/whole_text.h"
#include "data/template/word_start.h"

namespace temper {
namespace {

constexpr size_t kMaxMessages = 4096;

// Two contents that no template treats specially; their first characters differ.
constexpr const char* kProbes[] = {"Qzx7probe", "Vkw3probe"};

std::string_view WithoutTrailingSpace(std::string_view text) {
  return jinja::Strip(text, nullptr, false, true);
}

// A turn rendered as the last one.
struct Turn {
  size_t message = 0;
  std::string text;  // F; empty once another turn's text replaces it
  std::vector<TextSpan> spans;
  bool from_blocks = false;      // the spans are {% generation %} blocks: used unchanged
  std::vector<TextSpan> blocks;  // all {% generation %} blocks of F, also of earlier turns; goes with the text
  // If `inside` >= 0: F is the first `length` bytes of F of turn `inside` and, if `had_eos`, the eos_token.
  int64_t inside = -1;
  size_t length = 0;
  bool had_eos = false;
};

class Deriver {
 public:
  Deriver(const ChatRenderer& chat, const std::string& eos_token) : chat_(chat), eos_token_(eos_token) {}

  Result<std::vector<RenderedChat>> Run() {
    const auto& messages = chat_.messages();
    // Reported at once, not after the seconds that the turns before it take.
    const auto too_far = std::find_if(messages.begin() + static_cast<int64_t>(std::min(messages.size(), kMaxMessages)),
                                      messages.end(), [](const auto& message) { return message.supervised; });
    if (too_far != messages.end() && !LiesBeyond(static_cast<size_t>(too_far - messages.begin()))) return TooLong();
    std::vector<Turn> turns;
    bool left_out = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].supervised) continue;
      left_out = !turns.empty() && LiesBeyond(i);
      if (left_out) break;
      TEMPER_ASSIGN_OR_RETURN(Turn turn, RenderTurn(i));
      if (!turns.empty()) Release(turns.back(), turn, static_cast<int64_t>(turns.size()));
      turns.push_back(std::move(turn));
    }
    const bool whole = chat_.one_text() && left_out;
    if (whole) {
      // The text goes on to the last turn, whose own words are beyond what is used.
      TEMPER_ASSIGN_OR_RETURN(Turn last, RenderTurn(LastSupervised()));
      Release(turns.back(), last, static_cast<int64_t>(turns.size()));
      last.spans.clear();
      turns.push_back(std::move(last));
    }
    if (turns.empty()) {
      return InvalidArgument(
          "the conversation has no assistant message to train on; add one, or remove \"weight\": 0 or \"train\": "
          "false");
    }
    TEMPER_ASSIGN_OR_RETURN(std::vector<RenderedChat> chats, Group(std::move(turns)));
    if (whole && !chats.empty()) {
      RenderedChat& chat = chats.back();
      chat.beyond = chat.text.substr(chat.assistant.back().end);
      chat.text.resize(chat.assistant.back().end);
    } else if (left_out && !whole) {
      TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate all, Render(messages.size(), false));
      if (all.text.size() > chats.back().text.size()) chats.back().beyond = all.text.substr(chats.back().text.size());
    }
    return chats;
  }

 private:
  Status Fail(size_t message, std::string_view why) const {
    return InvalidArgument(
        fmt::format("{}: cannot find the assistant's text of message {}: {}; put {{% generation %}} ... "
                    "{{% endgeneration %}} around it in the template",
                    chat_.jinja_template().where(), message + 1, why));
  }

  Status TooLong() const {
    const auto& messages = chat_.messages();
    const auto turns = std::count_if(messages.begin(), messages.end(), [](const auto& m) { return m.supervised; });
    return Unsupported(fmt::format("a conversation of {} messages, {} of them supervised, is too long; split it",
                                   messages.size(), turns));
  }

  // ChatRenderer::Render, within the limit.
  Result<RenderedTemplate> Render(size_t count, bool add_generation_prompt,
                                  const ChatRenderer::OtherWords* instead = nullptr) {
    if (rendered_ > chat_.all_renderings()) return TooLong();
    Result<RenderedTemplate> rendered = chat_.Render(count, add_generation_prompt, instead);
    if (rendered.ok()) rendered_ += Bytes{static_cast<int64_t>(rendered->text.size())};
    return rendered;
  }

  // The prompt of turn i. Kept until another turn's is requested.
  const Result<RenderedTemplate>& Prompt(size_t i) {
    if (prompt_of_ != i) prompt_ = Render(i, true);
    prompt_of_ = i;
    return prompt_;
  }

  size_t LastSupervised() const {
    const auto& messages = chat_.messages();
    size_t last = messages.size() - 1;
    while (!messages[last].supervised) --last;
    return last;
  }

  bool LiesBeyond(size_t i) { return chat_.is_beyond() && Prompt(i).ok() && chat_.is_beyond()(prompt_->text); }

  // Drops the text of `turn` if it is a prefix of that of `next`, which will be turn number `index`.
  void Release(Turn& turn, const Turn& next, int64_t index) const {
    const std::string_view cut = WithoutEos(turn.text);
    const bool whole = next.text.starts_with(turn.text);
    if (!whole && !next.text.starts_with(cut)) return;
    if ((whole ? turn.text : cut).size() > WithoutEos(next.text).size())
      return;  // `next` itself may lose its eos_token later
    turn.inside = index;
    turn.length = whole ? turn.text.size() : cut.size();
    turn.had_eos = !whole;
    std::string().swap(turn.text);
    std::vector<TextSpan>().swap(turn.blocks);
  }

  Result<Turn> RenderTurn(size_t i) {
    TEMPER_ASSIGN_OR_RETURN(RenderedTemplate rendered, Render(i + 1, false));
    Turn turn{.message = i, .text = std::move(rendered.text)};
    if (chat_.jinja_template().has_generation_blocks() && !rendered.generation_lost) {
      turn.blocks = std::move(rendered.generations);
      TEMPER_ASSIGN_OR_RETURN(turn.spans, GenerationSpans(i, turn.blocks));
      // A template may have blocks only for some kinds of turns; a turn without any is found by its prompt.
      turn.from_blocks = !turn.spans.empty();
      if (turn.from_blocks) return turn;
    }
    TEMPER_RETURN_IF_ERROR(FindSpan(turn));
    return turn;
  }

  // The blocks of message i: those after the blocks of its prompt. Counted in the prompt, because the messages before
  // it, rendered without generation prompt, may be a finished conversation with a block that ends it.
  Result<std::vector<TextSpan>> GenerationSpans(size_t i, const std::vector<TextSpan>& all) {
    size_t before = 0;
    const bool first = std::none_of(chat_.messages().begin(), chat_.messages().begin() + static_cast<int64_t>(i),
                                    [](const auto& message) { return message.assistant; });
    if (!first) {
      const Result<RenderedTemplate>& prompt = Prompt(i);
      TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate prefix, prompt.ok() ? prompt : Render(i, false));
      before = prefix.generations.size();
    }
    std::vector<TextSpan> out;
    for (size_t k = std::min(before, all.size()); k < all.size(); ++k) {
      if (all[k].begin < all[k].end) out.push_back(all[k]);
    }
    return out;
  }

  Status FindSpan(Turn& turn) {
    const Result<RenderedTemplate>& prompt = Prompt(turn.message);
    size_t begin = 0;
    if (prompt.ok() && !prompt->text.empty() && turn.text.starts_with(prompt->text)) {
      begin = prompt->text.size();
      turn.text.resize(turn.text.size() - NextHeader(prompt->text, turn.text));
    } else {
      const size_t header = prompt.ok() ? NextHeader(prompt->text, turn.text) : 0;
      turn.text.resize(turn.text.size() - header);
      const Result<RenderedTemplate> before = Render(turn.message, false);
      Ahead ahead;
      if (before.ok()) {
        std::string_view text = before->text;
        if (header > 0) text.remove_suffix(NextHeader(prompt->text, text));
        if (turn.text.starts_with(WithoutEos(text))) ahead.history = WithoutEos(text).size();
        if (prompt.ok() && prompt->text.starts_with(before->text)) {
          ahead.header = std::string_view(prompt->text).substr(before->text.size());
        }
      }
      TEMPER_ASSIGN_OR_RETURN(begin, SaidFrom(turn, ahead));
      if (!ahead.history && prompt.ok() && turn.message > 0) {
        turn.text = prompt->text + turn.text.substr(begin);
        begin = prompt->text.size();
      } else if (ahead.history && prompt.ok()) {
        begin = NotInPrompt(turn, ahead, prompt->text, begin);
      }
    }
    const size_t end = SpanEnd(turn.message, turn.text);
    if (begin >= end) return Fail(turn.message, "the template prints nothing for it");
    turn.spans = {{begin, end}};
    return OkStatus();
  }

  // A template that ignores add_generation_prompt (Cohere's) prints the header of the next turn behind every
  // conversation, as at the end of its prompts. The model does not write it. Its length, 0 if there is none.
  size_t NextHeader(std::string_view prompt, std::string_view text) const {
    const size_t end = eos_token_.empty() ? std::string::npos : text.rfind(eos_token_);
    if (end == std::string::npos) return 0;
    const std::string_view behind = text.substr(end + eos_token_.size());
    return !WithoutTrailingSpace(behind).empty() && prompt.ends_with(behind) ? behind.size() : 0;
  }

  // What is ahead of a turn.
  struct Ahead {
    std::optional<size_t> history;  // the length of the messages before, if the turn's text begins with them
    std::string_view header;        // what add_generation_prompt adds
  };

  // Behind the last header of the prompt that the turn's text has between the words of the message before it and
  // `upto`; nullopt if there is none.
  std::optional<size_t> BehindHeader(const Turn& turn, const Ahead& ahead, size_t upto) {
    if (ahead.header.empty() || upto < ahead.header.size()) return std::nullopt;
    const ChatRenderer::OtherWords words{.content = kProbes[0], .alone = true, .message = turn.message - 1};
    const auto other = Render(turn.message + 1, false, &words);
    if (!other.ok() || other->text == turn.text) return std::nullopt;
    const auto n = static_cast<int64_t>(std::min(turn.text.size(), other->text.size()));
    const auto same = std::mismatch(turn.text.rbegin(), turn.text.rbegin() + n, other->text.rbegin()).first;
    const auto words_end = static_cast<size_t>(turn.text.rend() - same);
    const size_t at = turn.text.rfind(ahead.header, upto - ahead.header.size());
    return at == std::string::npos || at < words_end ? std::nullopt : std::optional(at + ahead.header.size());
  }

  // What the prompt lacks the model has to write, also where it is the same for all words: that begins ahead of `said`,
  // from where on the text depends on what is said. White space there may be the header's.
  size_t NotInPrompt(const Turn& turn, const Ahead& ahead, std::string_view prompt, size_t said) {
    const std::string_view text = turn.text;
    size_t begin = std::max(*ahead.history, CommonWords(prompt, text));
    if (begin >= said || IsBlank(text.substr(begin, said - begin))) return said;
    if (const auto behind = turn.message > 0 ? BehindHeader(turn, ahead, said) : std::nullopt) begin = *behind;
    return begin;
  }

  // The position in the turn's text from which on it depends on what the assistant says, or where the messages before
  // look otherwise in it than without the turn, its position behind the header.
  Result<size_t> SaidFrom(const Turn& turn, const Ahead& ahead) {
    Status failed;
    // A template may reject the turn without its tool calls: it counts the turns that have none.
    for (const bool alone : {true, false}) {
      if (!alone && !chat_.SaysMore(turn.message)) break;
      const auto begin = SaidFrom(turn, ahead, alone);
      if (begin.ok()) return begin;
      failed = begin.status();
    }
    return failed;
  }

  Result<size_t> SaidFrom(const Turn& turn, const Ahead& ahead, bool alone) {
    const ChatRenderer::OtherWords words[] = {{kProbes[0], alone}, {kProbes[1], alone}};
    TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate a, Render(turn.message + 1, false, &words[0]));
    TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate b, Render(turn.message + 1, false, &words[1]));
    const size_t content = CommonPrefix(a.text, b.text);
    if (a.text.compare(content, std::char_traits<char>::length(kProbes[0]), kProbes[0]) != 0) {
      return Fail(turn.message, "the template does not print its content");
    }
    size_t begin = std::min(CommonPrefix(turn.text, a.text), CommonPrefix(turn.text, b.text));
    if (!ahead.history && turn.message > 0) {
      if (const auto behind = BehindHeader(turn, ahead, begin)) return *behind;
    }
    if (begin < content) begin = std::max(ahead.history.value_or(0), WordStart(turn.text, begin));
    // Between the end of the history and the content the turn may print more of what was said: its reasoning. Text
    // further ahead is not the turn's. Without a history only white space is known to be the turn's: a template may
    // print a space ahead of the content, but not ahead of calls or reasoning.
    const auto between = std::string_view(a.text).substr(begin, content - begin);
    const bool elsewhere = ahead.history ? begin < *ahead.history : !jinja::Strip(between, nullptr, true, true).empty();
    if (begin != content && elsewhere) {
      return Fail(turn.message, "the text before it depends on it");
    }
    return begin;
  }

  // White space after the end-of-turn token belongs to the next turn. If the content itself comes last there is no such
  // token, and only white space ends the turn.
  size_t SpanEnd(size_t message, std::string_view text) const {
    const std::string_view trimmed = WithoutTrailingSpace(text);
    const jinja::Value* content = chat_.messages()[message].value.dict().Find("content");
    if (content && content->IsString()) {
      const std::string_view said = WithoutTrailingSpace(content->text());
      if (!said.empty() && trimmed.ends_with(said)) return text.size();
    }
    return trimmed.size();
  }

  std::string_view WithoutEos(std::string_view text) const {
    if (!eos_token_.empty() && text.ends_with(eos_token_)) text.remove_suffix(eos_token_.size());
    return text;
  }

  // How far the text of turn j begins with turn i, unchanged; nullopt if it does not.
  std::optional<size_t> HeldBy(const std::vector<Turn>& turns, size_t j, size_t i) const {
    const std::string_view text = turns[j].text;
    const Turn& turn = turns[i];
    const auto end_of = [&](std::string_view own) {
      return turn.from_blocks ? own.size() : SpanEnd(turn.message, own);
    };
    if (turn.inside < 0) {
      if (text.starts_with(turn.text)) return turn.text.size();
      const std::string_view cut = WithoutEos(turn.text);
      if (cut.size() == turn.text.size() || !text.starts_with(cut)) return std::nullopt;
      return end_of(cut);
    }
    // In a chain of texts that replace each other, each begins with the previous one.
    size_t root = static_cast<size_t>(turn.inside);
    while (turns[root].inside >= 0) root = static_cast<size_t>(turns[root].inside);
    const std::string_view own = std::string_view(turns[root].text).substr(0, turn.length);
    if (!text.starts_with(own)) return std::nullopt;
    if (!turn.had_eos) return turn.length;
    if (text.substr(turn.length).starts_with(eos_token_)) return turn.length + eos_token_.size();
    return end_of(own);
  }

  // Of turn i, in the text of turn j, which does not hold it: none if nothing of the turn is printed there.
  Result<std::vector<TextSpan>> SpansInWhole(const std::vector<Turn>& turns, size_t j, size_t i) {
    const Turn &last = turns[j], &turn = turns[i];
    size_t begins = 0;
    if (const auto& prompt = Prompt(turn.message); prompt.ok() && last.text.starts_with(prompt->text)) {
      begins = prompt->text.size();
    }
    // A turn that is appended to its prompt (step 2b) may be printed otherwise without that.
    const auto& prompt = Prompt(last.message);
    const bool by_prompt = prompt.ok() && !prompt->text.empty() && last.text.starts_with(prompt->text);
    const std::string text = by_prompt ? prompt->text : last.text;
    const WholeText whole{
        .text = text,
        .render = [&](const auto& words) { return Render(last.message + (by_prompt ? 0 : 1), by_prompt, &words); },
        .begins = begins,
        .behind = [&](const auto& words) -> Result<std::string> {
          TEMPER_ASSIGN_OR_RETURN(const auto own, Render(turn.message + 1, false, &words));
          const size_t at = own.text.rfind(words.content);
          return at == std::string::npos ? "" : own.text.substr(at + std::strlen(words.content));
        },
        .eos_token = eos_token_};
    const auto words = WordsInWhole(whole, turn.message, chat_.SaysMore(turn.message));
    if (!words.ok()) return Fail(turn.message, words.status().message());
    if (!*words) return std::vector<TextSpan>();
    if (!turn.from_blocks) return std::vector{**words};
    std::vector<TextSpan> blocks;
    for (const TextSpan& block : last.blocks) {
      if (block.begin < (*words)->end && block.end > (*words)->begin) blocks.push_back(block);
    }
    return blocks;
  }

  Result<std::vector<RenderedChat>> Group(std::vector<Turn> turns) {
    std::vector<RenderedChat> out;
    std::vector<bool> held(turns.size(), false);
    for (size_t j = turns.size(); j-- > 0;) {
      if (held[j]) continue;
      RenderedChat chat;
      for (size_t i = 0; i < j; ++i) {
        if (held[i]) continue;
        const auto upto = HeldBy(turns, j, i);
        if (!upto && chat_.one_text()) {
          TEMPER_ASSIGN_OR_RETURN(const std::vector<TextSpan> spans, SpansInWhole(turns, j, i));
          chat.assistant.insert(chat.assistant.end(), spans.begin(), spans.end());
          chat.messages.resize(chat.assistant.size(), turns[i].message);
          held[i] = true;
        }
        if (!upto) continue;
        held[i] = true;
        for (const TextSpan& span : turns[i].spans) {
          if (turns[i].from_blocks && span.begin >= *upto) break;  // the end of the conversation is missing here
          // A block may end otherwise where the conversation continues (OLMo 3: an end-of-turn token, not EOS).
          const auto block = std::find_if(turns[j].blocks.begin(), turns[j].blocks.end(),
                                          [&](const TextSpan& b) { return b.begin == span.begin; });
          const bool same_block = turns[i].from_blocks && block != turns[j].blocks.end();
          chat.assistant.push_back({span.begin, same_block ? block->end : std::min(span.end, *upto)});
          chat.messages.push_back(turns[i].message);
        }
      }
      chat.assistant.insert(chat.assistant.end(), turns[j].spans.begin(), turns[j].spans.end());
      chat.messages.resize(chat.assistant.size(), turns[j].message);
      chat.text = std::move(turns[j].text);
      held[j] = true;
      if (chat.assistant.empty()) continue;  // of a whole text of which nothing that is used counts
      TEMPER_RETURN_IF_ERROR(Check(chat, turns[j].message));
      out.push_back(std::move(chat));
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  // Checks the header's promises about a RenderedChat. The template is at fault, not this code, so it is an error.
  Status Check(const RenderedChat& chat, size_t message) const {
    size_t end = 0, supervised = 0;
    for (const TextSpan& span : chat.assistant) {
      if (span.begin < end || span.end <= span.begin || span.end > chat.text.size()) {
        return Fail(message, "its text overlaps that of another turn");
      }
      end = span.end;
      supervised += span.end - span.begin;
    }
    if (supervised == chat.text.size()) return Fail(message, "the template prints no prompt before it");
    return OkStatus();
  }

  const ChatRenderer& chat_;
  const std::string& eos_token_;
  Bytes rendered_;
  size_t prompt_of_ = std::string::npos;
  Result<RenderedTemplate> prompt_ = RenderedTemplate();
};

}  // namespace

Result<std::vector<RenderedChat>> DeriveSpans(const ChatRenderer& chat, const std::string& eos_token) {
  return Deriver(chat, eos_token).Run();
}

}  // namespace temper
