#include "data/weight_search.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "data/records.h"
#include "data/template/conversation.h"
#include "format/data_file_name.h"
#include "format/text_stream.h"

namespace temper {
namespace {

constexpr size_t kBlock = 1 << 20;
// Bytes kept before the next block: more than the longest key.
constexpr size_t kOverlap = 16;
// Limit for a weight's white space and number; the rows of a file with longer ones are parsed.
constexpr size_t kLongestMention = 1024;

constexpr std::string_view kSpace = " \t\r\n";

// All keys that NormalizeMessages and MakeRecord take for a weight end like this ("loss_weight" does).
bool EndsInWeightKey(std::string_view text) {
  return text.ends_with("weight") || text.ends_with("loss") || text.ends_with("train");
}

// REQUIRES: a key's closing quote is at `quote`.
WeightMention JudgeValue(std::string_view text, size_t quote, bool at_end) {
  const WeightMention none, found{quote, false}, open{quote, !at_end};
  size_t at = text.find_first_not_of(kSpace, quote + 1);
  if (at == text.npos) return at_end ? none : open;
  if (text[at] != ':') return none;
  at = text.find_first_not_of(kSpace, at + 1);
  if (at == text.npos) return open;
  const size_t end = text.find_first_of(" \t\r\n,}]", at);
  if (end == text.npos) return open;
  const std::string_view value = text.substr(at, end - at);
  for (const std::string_view plain : {"1", "0", "1.0", "0.0", "true", "false", "null"}) {
    if (value == plain) return none;
  }
  return found;
}

// Letters of a key may be written as escapes: \u0061 to \u007a, and \u005f, the underscore. REQUIRES: `text` has
// "\u00" at `at`.
WeightMention JudgeEscape(std::string_view text, size_t at, bool at_end) {
  if (text.size() < at + 6) return at_end ? WeightMention() : WeightMention{at, true};
  const char high = text[at + 4], low = text[at + 5];
  const bool letter = high == '6' || high == '7' || (high == '5' && (low == 'f' || low == 'F'));
  return letter ? WeightMention{at, false} : WeightMention();
}

bool IsWeight(TokenWeight weight) {
  return weight != 0 && weight != kUnitWeight;
}

bool HasWeight(const Record& record) {
  return IsWeight(record.weight) || std::any_of(record.messages.begin(), record.messages.end(),
                                                [](const OrderedJson& message) { return IsWeight(WeightOf(message)); });
}

// Whether the bytes of the text may contain a weight; true if it cannot be read.
bool MayHaveWeights(TextStream& stream, const std::function<void(Bytes, Bytes)>& progress) {
  // A small file takes a small buffer: filling a large one takes longer than the search.
  const size_t block = stream.compressed() ? kBlock : std::clamp<size_t>(stream.size().v, 1, kBlock);
  std::vector<char> buffer(block + kLongestMention + kOverlap);
  size_t kept = 0;
  for (;;) {
    const auto read = stream.Read(std::span(buffer).subspan(kept, block));
    if (!read.ok()) return true;
    if (progress) progress(stream.position(), stream.size());
    const std::string_view text(buffer.data(), kept + *read);
    const WeightMention mention = FindWeight(text, /*at_end=*/*read == 0);
    if (mention.at != text.npos && !mention.cut_off) return true;
    if (*read == 0) return false;
    const size_t open = std::min(mention.at, text.size());
    if (text.size() - open > kLongestMention) return true;
    kept = text.size() - (open > kOverlap ? open - kOverlap : 0);
    kept = std::min(kept, text.size());
    std::memmove(buffer.data(), buffer.data() + text.size() - kept, kept);
  }
}

// Whether a table may have weights: in a column of its own, or in the messages of one.
bool MayHaveWeights(const std::vector<std::string>& header) {
  return std::any_of(header.begin(), header.end(), [](const std::string& name) {
    return name == "weight" || name == "messages" || name == "conversations";
  });
}

// Whether weights may have other names in the file.
bool RenamesWeights(const RowColumns& columns) {
  return std::any_of(columns.begin(), columns.end(), [](const RowColumn& c) { return EndsInWeightKey(c.field); });
}

}  // namespace

WeightMention FindWeight(std::string_view text, bool at_end) {
  WeightMention open;
  // False: continue the search.
  const auto decided = [&](const WeightMention& mention) {
    if (mention.at == text.npos) return false;
    if (mention.cut_off) open = mention.at < open.at ? mention : open;
    return !mention.cut_off;
  };
  for (size_t at = text.find('"'); at != text.npos; at = text.find('"', at + 1)) {
    if (!EndsInWeightKey(text.substr(0, at))) continue;
    if (const WeightMention mention = JudgeValue(text, at, at_end); decided(mention)) return mention;
  }
  for (size_t at = text.find('\\'); at != text.npos; at = text.find('\\', at + 1)) {
    const std::string_view escape = text.substr(at, 4);
    if (escape != std::string_view("\\u00").substr(0, escape.size())) continue;
    if (const WeightMention mention = JudgeEscape(text, at, at_end); decided(mention)) return mention;
  }
  return open;
}

bool HasWeights(Env& env, const std::string& path, int64_t max_rows, const RowReading& reading,
                const std::function<void(Bytes, Bytes)>& progress) {
  if (KindOfDataFile(path) == DataFileKind::kText) return false;
  const auto reader = RecordReader::Open(env, path, reading);
  if (!reader.ok()) return false;
  const bool renamed = RenamesWeights(reading.columns);
  if (const auto* names = (*reader)->names()) {
    if (!renamed && std::none_of(names->begin(), names->end(), EndsInWeightKey)) return false;
  } else if (const auto* header = (*reader)->columns()) {
    if (reading.columns.empty() && !MayHaveWeights(*header)) return false;
  } else if (!renamed &&
             max_rows == std::numeric_limits<int64_t>::max()) {  // else the first rows may be a small part of the file
    const auto text = TextStream::Open(env, path);
    if (!text.ok() || !MayHaveWeights(**text, progress)) return false;
  }
  RawRow row;
  for (int64_t n = 0; n < max_rows; ++n) {
    const auto more = (*reader)->Next(row);
    if (!more.ok() || !*more) return false;
    if (!renamed && FindWeight(row.text, /*at_end=*/true).at == std::string_view::npos) continue;
    const auto record = (*reader)->Parse(row);
    if (record.ok() && HasWeight(*record)) return true;
  }
  return false;
}

}  // namespace temper
