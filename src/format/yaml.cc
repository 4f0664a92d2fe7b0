#include "format/yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "base/utf8.h"
#include "format/quoted.h"
#include "format/yaml_mistake.h"

namespace temper {
namespace {

// No configuration nests deeper; yaml-cpp and the documents' destructors recurse.
constexpr size_t kMaxYamlDepth = 64;
// Bounds what aliases may copy out. A value is charged 64 bytes (a JSON value, its line and its key's string) and its
// text; 1 MiB of YAML has at most 2^19 values, so a document without aliases always fits.
constexpr int64_t kMaxCost = MiB(64).v;
constexpr int64_t kValueCost = 64;

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

// Ends yaml-cpp's parse from inside its event handler; never leaves this file.
struct Stop {
  Status status;
};

// Byte offset of the first byte that is no part of well-formed UTF-8, or is zero; the text's size where all is well.
size_t FirstBadByte(std::string_view text) {
  return std::min(utf8::ValidPrefix(text), text.find('\0'));
}

// As people count.
int LineAt(const YAML::Mark& mark) {
  return mark.line + 1;
}

// Whether a tab is among the white space that line `line` (from 0) begins with.
bool IndentedByTab(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find_first_not_of(" \t")).find('\t') != text.npos;
}

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool OneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// [-+]? ( \.[0-9]+ | [0-9]+ (\.[0-9]*)? ) ([eE][-+]?[0-9]+)?   (core schema; `unsigned_text` has lost its sign)
bool LooksLikeFloat(std::string_view unsigned_text) {
  std::string_view mantissa = unsigned_text;
  if (const size_t e = unsigned_text.find_first_of("eE"); e != unsigned_text.npos) {
    std::string_view exponent = unsigned_text.substr(e + 1);
    if (!exponent.empty() && (exponent[0] == '+' || exponent[0] == '-')) exponent.remove_prefix(1);
    if (!AllDigits(exponent)) return false;
    mantissa = unsigned_text.substr(0, e);
  }
  const size_t dot = mantissa.find('.');
  if (dot == mantissa.npos) return AllDigits(mantissa);
  const std::string_view whole = mantissa.substr(0, dot), fraction = mantissa.substr(dot + 1);
  if (whole.empty()) return AllDigits(fraction);
  return AllDigits(whole) && (fraction.empty() || AllDigits(fraction));
}

// The number that `text` is by the core schema; nullopt where it is none; an error where no 64-bit type holds it.
Result<std::optional<OrderedJson>> ParseNumber(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (OneOf(digits, {".inf", ".Inf", ".INF"})) {
    const double infinity = std::numeric_limits<double>::infinity();
    return std::optional<OrderedJson>(negative ? -infinity : infinity);
  }
  if (OneOf(text, {".nan", ".NaN", ".NAN"})) {
    return std::optional<OrderedJson>(std::numeric_limits<double>::quiet_NaN());
  }
  const Status out_of_range = Corrupt(fmt::format("{} does not fit a 64-bit number", Quoted(text)));
  int base = AllDigits(digits) ? 10 : 0;
  if (digits.size() == text.size() && text.starts_with("0x")) base = 16;
  if (digits.size() == text.size() && text.starts_with("0o")) base = 8;
  if (base != 0) {
    const std::string_view number = base == 10 ? digits : digits.substr(2);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value, base);
    if (number.empty() || end != number.data() + number.size()) return std::optional<OrderedJson>();  // "0xZ": text
    if (error == std::errc::result_out_of_range) return out_of_range;
    constexpr uint64_t kTwoTo63 = uint64_t{1} << 63;
    if (negative && value > kTwoTo63) return out_of_range;
    if (negative) return std::optional<OrderedJson>(static_cast<int64_t>(-value));
    if (value < kTwoTo63) return std::optional<OrderedJson>(static_cast<int64_t>(value));
    return std::optional<OrderedJson>(value);
  }
  if (!LooksLikeFloat(digits)) return std::optional<OrderedJson>();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc()) return out_of_range;
  return std::optional<OrderedJson>(negative ? -value : value);
}

std::optional<bool> ParseBool(std::string_view text, YamlVersion version) {
  if (OneOf(text, {"true", "True", "TRUE"})) return true;
  if (OneOf(text, {"false", "False", "FALSE"})) return false;
  if (version == YamlVersion::k12) return std::nullopt;
  if (OneOf(text, {"yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (OneOf(text, {"no", "No", "NO", "off", "Off", "OFF"})) return false;
  return std::nullopt;
}

// "1_000" without its underscores; other texts as they are.
std::string WithoutUnderscores(std::string text) {
  const size_t first = text.find_first_not_of("+-");
  const bool number = first <= 1 && first < text.size() && text[first] >= '0' && text[first] <= '9' &&
                      text.find_first_not_of("0123456789_.", first) == text.npos;
  if (number) std::erase(text, '_');
  return text;
}

class YamlBuilder final : public YAML::EventHandler {
 public:
  YamlBuilder(const std::string& where, YamlVersion version) : where_(where), version_(version) {}

  YamlDocument TakeDocument() { return {std::move(root_.value), std::move(root_.lines)}; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (ExpectsKey()) Fail(mark, Corrupt("a key is empty or null; write 'key: value'"));
    Add(mark, {.value = nullptr, .lines = {LineAt(mark), {}}, .cost = kValueCost}, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (ExpectsKey()) Fail(mark, Unsupported("an alias stands where a key should be; write the key out"));
    const auto it = anchored_.find(anchor);
    if (it == anchored_.end()) Fail(mark, Corrupt("an alias stands inside the value that it names"));
    Charge(mark, it->second.cost);
    Add(mark, Node(it->second), /*anchor=*/0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (ExpectsKey()) return AddKey(mark, tag, anchor, text);
    CheckText(mark, text);
    Charge(mark, static_cast<int64_t>(text.size()));
    Add(mark,
        {.value = Scalar(mark, tag, text),
         .lines = {LineAt(mark), {}},
         .cost = kValueCost + static_cast<int64_t>(text.size())},
        anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, "seq", anchor, OrderedJson::array());
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, "map", anchor, OrderedJson::object());
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  struct Node {
    OrderedJson value;
    YamlLines lines;
    int64_t cost = 0;  // of this value with all inside it
  };
  // An array or object that is being read.
  struct Frame {
    Node node;
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key;  // read, and waiting for its value
    int key_line = 0;
    std::unordered_map<std::string, int> key_lines;  // of every key so far
  };

  bool ExpectsKey() const { return !stack_.empty() && stack_.back().node.value.is_object() && !stack_.back().key; }

  [[noreturn]] void Fail(const YAML::Mark& mark, const Status& status) const { FailAtLine(LineAt(mark), status); }
  [[noreturn]] void FailAtLine(int line, const Status& status) const {
    throw Stop{Status(status.code(), fmt::format("{} line {}: {}", where_, line, status.message()))};
  }

  void Charge(const YAML::Mark& mark, int64_t cost) {
    total_cost_ += cost;
    if (total_cost_ > kMaxCost) {
      Fail(mark, Corrupt(fmt::format("aliases make the document larger than {}", ToString(Bytes{kMaxCost}))));
    }
  }

  // yaml-cpp makes lone bytes (not UTF-8) of the escapes \N and \_; a zero byte would cut a path or a name short.
  void CheckText(const YAML::Mark& mark, const std::string& text) const {
    if (FirstBadByte(text) == text.size()) return;
    Fail(mark,
         Unsupported(fmt::format("{} uses the escape \\0, \\N or \\_; write the character itself", Quoted(text))));
  }

  void AddKey(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) {
    if (anchor != 0) Fail(mark, Unsupported("a key has an anchor; put the anchor before the value"));
    if (tag == "?" && text == "<<") {
      Fail(mark, Unsupported("merge keys ('<<') are not part of YAML 1.2; write the merged keys out"));
    }
    CheckTag(mark, tag, "str");
    CheckText(mark, text);
    Frame& frame = stack_.back();
    const auto [it, is_new] = frame.key_lines.emplace(text, LineAt(mark));
    if (!is_new) {
      Fail(mark, Corrupt(fmt::format("the key {} appears twice; the first is in line {}", Quoted(text), it->second)));
    }
    Charge(mark, static_cast<int64_t>(text.size()));
    frame.node.cost += static_cast<int64_t>(text.size());
    frame.key = text;
    frame.key_line = LineAt(mark);
  }

  void Open(const YAML::Mark& mark, const std::string& tag, std::string_view kind, YAML::anchor_t anchor,
            OrderedJson empty) {
    CheckTag(mark, tag, kind);
    if (ExpectsKey()) Fail(mark, Unsupported("a list or map stands where a key should be; a key must be plain text"));
    if (stack_.size() == kMaxYamlDepth) Fail(mark, Corrupt(fmt::format("nested deeper than {} levels", kMaxYamlDepth)));
    stack_.push_back({.node = {.value = std::move(empty), .lines = {LineAt(mark), {}}, .cost = kValueCost},
                      .mark = mark,
                      .anchor = anchor});
  }

  void Close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    Add(frame.mark, std::move(frame.node), frame.anchor);
  }

  // A finished value goes into the array or object that is open, or becomes the document.
  void Add(const YAML::Mark& mark, Node node, YAML::anchor_t anchor) {
    Charge(mark, kValueCost);
    if (anchor != 0) {
      Charge(mark, node.cost);
      anchored_[anchor] = node;
    }
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    frame.node.cost += node.cost;
    if (frame.key) {
      node.lines.line = frame.key_line;
      // Not operator[]: it would search all keys before, which key_lines has done.
      using Members = std::vector<std::pair<const std::string, OrderedJson>>;
      static_cast<Members&>(frame.node.value.get_ref<OrderedJson::object_t&>())
          .emplace_back(std::move(*frame.key), std::move(node.value));
      frame.key.reset();
    } else {
      frame.node.value.push_back(std::move(node.value));
    }
    frame.node.lines.children.push_back(std::move(node.lines));
  }

  // "?" and "!" are what yaml-cpp gives untagged plain and untagged quoted scalars and collections.
  void CheckTag(const YAML::Mark& mark, const std::string& tag, std::string_view allowed) const {
    if (tag.empty() || tag == "?" || tag == "!" || tag == std::string(kTagPrefix).append(allowed)) return;
    Fail(mark, Unsupported(fmt::format("the tag {} is not one that Temper knows", Quoted(tag))));
  }

  OrderedJson Scalar(const YAML::Mark& mark, const std::string& tag, const std::string& text) const {
    const std::string_view kind = tag.starts_with(kTagPrefix) ? std::string_view(tag).substr(kTagPrefix.size()) : "";
    if (tag == "!" || kind == "str") return text;
    const bool plain = tag.empty() || tag == "?";
    if (!plain && !OneOf(kind, {"bool", "int", "float", "null"})) CheckTag(mark, tag, "str");
    if (kind == "null" && OneOf(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
    if (plain || kind == "bool") {
      if (const auto b = ParseBool(text, version_)) return *b;
    }
    if (plain || kind == "int" || kind == "float") {
      auto number = ParseNumber(version_ == YamlVersion::k11 ? WithoutUnderscores(text) : text);
      if (!number.ok()) Fail(mark, number.status());
      if (*number && kind == "float") return (*number)->get<double>();
      if (*number && (plain || (*number)->is_number_integer())) return std::move(**number);
    }
    if (plain) return text;
    Fail(mark, Corrupt(fmt::format("{} is tagged !!{} but is not one", Quoted(text), kind)));
  }

  const std::string& where_;
  const YamlVersion version_;
  Node root_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Node> anchored_;
  int64_t total_cost_ = 0;
};

}  // namespace

int YamlDocument::LineOf(std::string_view pointer) const {
  const OrderedJson* at = &value;
  const YamlLines* place = &lines;
  while (!pointer.empty()) {
    if (pointer.front() != '/') return 0;
    pointer.remove_prefix(1);
    const std::string_view escaped = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(escaped.size());
    size_t index = 0;
    if (at->is_array()) {
      const auto [end, error] = std::from_chars(escaped.data(), escaped.data() + escaped.size(), index);
      if (error != std::errc() || end != escaped.data() + escaped.size()) return 0;
      if (index >= at->size()) return 0;
      at = &(*at)[index];
    } else if (at->is_object()) {
      std::string key;
      for (size_t i = 0; i < escaped.size(); ++i) {
        const bool is_escape = escaped[i] == '~' && i + 1 < escaped.size();
        key += is_escape ? (escaped[++i] == '1' ? '/' : '~') : escaped[i];
      }
      const auto it = at->find(key);
      if (it == at->end()) return 0;
      index = static_cast<size_t>(std::distance(at->begin(), it));
      at = &*it;
    } else {
      return 0;
    }
    if (index >= place->children.size()) return 0;
    place = &place->children[index];
  }
  return place->line;
}

Result<YamlDocument> ParseYaml(std::string_view text, const std::string& where, YamlVersion version) {
  if (static_cast<int64_t>(text.size()) > kMaxYamlText.v) {
    return Corrupt(fmt::format("{} has {}, more than the {} that a YAML file may have", where,
                               ToString(Bytes{static_cast<int64_t>(text.size())}), ToString(kMaxYamlText)));
  }
  if (const size_t bad = FirstBadByte(text); bad != text.size()) {
    return Corrupt(fmt::format("{} line {}: byte {} of the file is not UTF-8 text; save the file as UTF-8", where,
                               std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n') + 1,
                               bad));
  }
  YamlBuilder builder(where, version);
  try {
    // yaml-cpp takes the end of the text for a missing closing quote; an explicit end of the document it does not.
    std::istringstream stream(std::string(text) + (text.empty() || text.ends_with('\n') ? "...\n" : "\n...\n"));
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return YamlDocument{.value = nullptr, .lines = {1, {}}};
    YamlDocument document = builder.TakeDocument();
    YamlBuilder second(where, version);
    if (parser.HandleNextDocument(second)) {
      return Unsupported(fmt::format("{} holds more than one YAML document ('---'); keep one", where));
    }
    return document;
  } catch (const Stop& stop) {
    return stop.status;
  } catch (const YAML::Exception& e) {
    if (IndentedByTab(text, e.mark.line)) {
      return Corrupt(fmt::format("{} line {}: a tab indents the line: YAML takes spaces only", where, LineAt(e.mark)));
    }
    const YamlMistake mistake = FindYamlMistake(text, e.mark.line, e.msg);
    return Corrupt(fmt::format("{} line {}: not valid YAML: {}", where, mistake.line, mistake.what));
  } catch (const std::exception& e) {  // yaml-cpp lets std::out_of_range and bad_alloc pass
    return Corrupt(fmt::format("{}: not valid YAML: {}", where, Quoted(e.what())));
  }
}

Result<YamlDocument> ReadYamlFile(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxYamlText));
  return ParseYaml(text, path);
}

}  // namespace temper
