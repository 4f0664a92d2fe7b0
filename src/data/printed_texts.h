// PrintedTexts: whether the texts of one row have what its messages say. The texts of a conversation repeat each other,
// so only what a text adds to the one before it is read. What is asked for in the order of the messages costs about one
// reading of this in all; what is missing or elsewhere costs one each, and after a few of them is searched no more: a
// conversation takes time in proportion to its texts, not to its texts times its messages.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/template/chat_rendering.h"

namespace temper {

class PrintedTexts {
 public:
  enum class Answer { kYes, kNo, kNotSearched };

  // For each kind; short texts are read more often, which costs little. In all: that of kMostKinds of them.
  static constexpr size_t kMostReadings = 4, kLeastBytes = size_t{64} << 10, kMostKinds = 8;

  explicit PrintedTexts(std::span<const RenderedChat> chats);  // which must outlive it

  // By the longest line of `text`, as it is or as in JSON. kNotSearched: too much was read for this `kind` of question.
  Answer Has(std::string_view text, const std::string& kind);
  // The questions up to the next call are about the message behind those before. Speeds up the search.
  void NextMessage();

  size_t size() const { return size_; }  // bytes of what the texts add to each other
  size_t bytes_read() const { return read_; }

  // The same in one text, however much it costs.
  static bool Shows(std::string_view where, std::string_view text);

 private:
  struct Text {
    std::string_view text;
    size_t added;  // text[added, ) is what it adds
  };
  struct Place {
    size_t text = 0, at = 0;
    bool operator<(const Place& other) const { return text != other.text ? text < other.text : at < other.at; }
  };

  bool Finds(std::string_view line);
  bool FindsIn(size_t t, size_t begin, size_t end, std::string_view line);

  std::vector<Text> texts_;
  size_t size_ = 0, read_ = 0;
  std::map<std::string, size_t> read_for_;  // by kind
  bool in_json_ = false;                    // how the last line was found
  Place from_, next_;                       // of this message, of the next one
  bool found_ = false;                      // next_ is of this message
};

}  // namespace temper
