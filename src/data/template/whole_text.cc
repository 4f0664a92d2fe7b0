#include "data/template/whole_text.h"

#include <algorithm>
#include <string_view>

#include "base/text_parts.h"
#include "data/template/word_start.h"

namespace temper {
namespace {

// Two contents that no template treats specially; their first characters differ.
constexpr const char* kOtherTexts[] = {"Qzx7probe", "Vkw3probe"};

Status Fails(const char* why) {
  return InvalidArgument(why);
}

// The length of what ends a turn at the beginning of `rest`, which follows the turn. `behind`: what follows it where it
// is the last, perhaps with the eos_token of a finished conversation.
size_t EndOfTurn(std::string_view rest, std::string_view behind, std::string_view eos_token) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto stripped = [&](std::string_view text) { return text.substr(0, text.find_last_not_of(kSpace) + 1); };
  behind = stripped(behind);
  if (rest.starts_with(behind)) return behind.size();
  if (eos_token.empty() || !behind.ends_with(eos_token)) return 0;
  behind = stripped(behind.substr(0, behind.size() - eos_token.size()));
  return rest.starts_with(behind) ? behind.size() : 0;
}

Result<std::optional<TextSpan>> WordsOf(const WholeText& whole, size_t message, bool alone) {
  const ChatRenderer::OtherWords words[] = {{.content = kOtherTexts[0], .alone = alone, .message = message},
                                            {.content = kOtherTexts[1], .alone = alone, .message = message}};
  TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate a, whole.render(words[0]));
  TEMPER_ASSIGN_OR_RETURN(const RenderedTemplate b, whole.render(words[1]));
  const std::string_view text = whole.text;
  if (a.text == b.text) {  // its content is not printed, nor anything else if the text is the same without that
    if (!alone || text != a.text) return Fails("the template does not print its content");
    return std::optional<TextSpan>();
  }
  const size_t content = CommonPrefix(a.text, b.text), length = std::char_traits<char>::length(kOtherTexts[0]);
  if (a.text.compare(content, length, kOtherTexts[0]) != 0) return Fails("the template does not print its content");
  const std::string_view rest = std::string_view(a.text).substr(content + length);
  if (std::string_view(b.text).substr(content + length) != rest) return Fails("the text behind it depends on it");
  size_t begin = std::min(CommonPrefix(text, a.text), CommonPrefix(text, b.text));
  // A word that the turn begins in its middle is no reason to begin ahead of the turn.
  if (begin < content) begin = std::max(WordStart(text, begin), std::min(begin, whole.begins));
  // Text ahead of the content, such as reasoning, belongs to the turn only behind its prompt.
  if (begin < content && begin < whole.begins) return Fails("the text before it depends on it");
  if (begin < content && whole.begins == 0 && !IsBlank(a.text.substr(begin, content - begin))) {
    return Fails("the text before it depends on it");
  }
  // What the prompt lacks the model had to write, also where it is the same for all words.
  if (whole.begins > 0 && !IsBlank(text.substr(whole.begins, begin - whole.begins))) begin = whole.begins;
  if (!text.ends_with(rest)) return Fails("the text behind it depends on it");
  const size_t end = text.size() - rest.size();
  if (end <= begin) return std::optional<TextSpan>();
  TEMPER_ASSIGN_OR_RETURN(const std::string behind, whole.behind(words[0]));
  return std::optional<TextSpan>({begin, end + EndOfTurn(rest, behind, whole.eos_token)});
}

}  // namespace

Result<std::optional<TextSpan>> WordsInWhole(const WholeText& whole, size_t message, bool says_more) {
  // A template may reject the turn without its tool calls: it counts the turns that have none.
  auto words = WordsOf(whole, message, /*alone=*/true);
  if (!words.ok() && says_more) words = WordsOf(whole, message, /*alone=*/false);
  return words;
}

}  // namespace temper
