#include "data/printed_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_parts.h"
#include "format/json.h"

namespace temper {
namespace {

// Templates change white space at the ends of a text, and may print it in pieces.
std::string_view LongestLine(std::string_view text) {
  std::string_view longest;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Stripped(text.substr(at, end - at));
    if (line.size() > longest.size()) longest = line;
    at = end + 1;
  }
  return longest;
}

// As a template prints it that makes JSON of it.
std::string Escaped(std::string_view text) {
  const std::string quoted = DumpJson(OrderedJson(text));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

PrintedTexts::PrintedTexts(std::span<const RenderedChat> chats) {
  std::string_view before;
  for (const RenderedChat& chat : chats) {
    texts_.push_back({chat.text, CommonPrefix(before, chat.text)});
    before = chat.text;
    if (!chat.beyond.empty()) texts_.push_back({chat.beyond, 0});
  }
  for (const Text& text : texts_) size_ += text.text.size() - text.added;
}

PrintedTexts::Answer PrintedTexts::Has(std::string_view text, const std::string& kind) {
  const std::string_view line = LongestLine(text);
  if (line.empty()) return Answer::kYes;
  const size_t most = std::max(kMostReadings * size_, kLeastBytes);
  size_t& spent = read_for_[kind];
  if (spent >= most || read_ >= kMostKinds * most) return Answer::kNotSearched;
  const size_t before = read_;
  const std::string escaped = Escaped(line);
  bool found = Finds(in_json_ ? escaped : line);
  if (!found && escaped != line) {
    found = Finds(in_json_ ? line : escaped);
    if (found) in_json_ = !in_json_;
  }
  spent += read_ - before;
  return found ? Answer::kYes : Answer::kNo;
}

bool PrintedTexts::Shows(std::string_view where, std::string_view text) {
  const std::string_view line = LongestLine(text);
  if (line.empty() || where.find(line) != where.npos) return true;
  const std::string escaped = Escaped(line);
  return escaped != line && where.find(escaped) != where.npos;
}

// The first place counts: one further behind may be that of a later message that says the same.
void PrintedTexts::NextMessage() {
  if (found_) from_ = next_;
  found_ = false;
}

// From this message on, then what is before it.
bool PrintedTexts::Finds(std::string_view line) {
  const Place from = from_;
  for (size_t t = from.text; t < texts_.size(); ++t) {
    if (FindsIn(t, t == from.text ? from.at : 0, texts_[t].text.size(), line)) return true;
  }
  for (size_t t = 0; t < texts_.size() && t <= from.text; ++t) {
    if (FindsIn(t, 0, t == from.text ? from.at + line.size() - 1 : texts_[t].text.size(), line)) return true;
  }
  return false;
}

bool PrintedTexts::FindsIn(size_t t, size_t begin, size_t end, std::string_view line) {
  const Text& text = texts_[t];
  // A line that begins in what the text before it has may end in what this one adds.
  begin = std::max(begin, text.added - std::min(text.added, line.size() - 1));
  end = std::min(end, text.text.size());
  if (begin >= end) return false;
  const size_t at = text.text.substr(0, end).find(line, begin);
  read_ += std::min(at, end) - begin;
  if (at == std::string_view::npos) return false;
  const Place place{t, at};
  next_ = found_ ? std::min(next_, place) : place;
  found_ = true;
  return true;
}

}  // namespace temper
