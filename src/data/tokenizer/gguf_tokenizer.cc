#include "data/tokenizer/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/utf8.h"
#include "data/tokenizer/gguf_pre_tokenizer.h"
#include "data/tokenizer/vocabulary.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// llama.cpp's types of tokens, which are SentencePiece's, too (llama.h, enum llama_token_type).
enum Type : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Protobuf's wire format.
class ProtoWriter {
 public:
  void Number(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
  }
  void Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) out_ += static_cast<char>(bits >> 8 * i & 0xFF);
  }
  void Text(int field, std::string_view bytes) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(bytes.size());
    out_ += bytes;
  }
  const std::string& bytes() const { return out_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(0x80 | (value & 0x7F));
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

class GgufTokenizerFiles {
 public:
  GgufTokenizerFiles(const GgufMetadata& keys, const std::string& where) : keys_(keys), where_(where) {}

  Result<std::map<std::string, std::string>> Run() {
    const auto* const model = Find<std::string>("model");
    if (model == nullptr || *model == "none" || *model == "no_vocab") return std::move(files_);
    TEMPER_RETURN_IF_ERROR(ReadTokens());
    config_ = {{"clean_up_tokenization_spaces", false}};
    if (*model == "gpt2") {
      TEMPER_RETURN_IF_ERROR(WriteByteLevel());
    } else if (*model == "llama") {
      TEMPER_RETURN_IF_ERROR(WriteSentencePiece());
    } else {
      return Unsupported(
          fmt::format("{}: a tokenizer of llama.cpp's kind {}; gpt2 (byte-level BPE) and llama "
                      "(SentencePiece's BPE) are read. Use the model's Hugging Face folder",
                      where_, Quoted(*model)));
    }
    TEMPER_RETURN_IF_ERROR(WriteRoles());
    WriteTemplates();
    files_["tokenizer_config.json"] = DumpJson(config_, 1) + "\n";
    return std::move(files_);
  }

 private:
  template <class T>
  const T* Find(const char* key) const {
    const GgufValue* const value = keys_.Find(std::string("tokenizer.ggml.") + key);
    return value == nullptr ? nullptr : std::get_if<T>(value);
  }
  bool Flag(const char* key, bool fallback) const {
    const bool* const value = Find<bool>(key);
    return value == nullptr ? fallback : *value;
  }
  Result<std::optional<int32_t>> IdOf(const char* key) const {
    const auto* const value = Find<uint32_t>(key);
    const auto* const with_sign = Find<int32_t>(key);
    if (value == nullptr && with_sign == nullptr) return std::optional<int32_t>();
    const int64_t id = value != nullptr ? int64_t{*value} : int64_t{*with_sign};
    if (id == -1 || id == int64_t{~uint32_t{0}}) return std::optional<int32_t>();  // there is none
    if (id < 0 || id >= std::ssize(tokens_)) {
      return Corrupt(fmt::format("{}: tokenizer.ggml.{} is {}, and it has {} tokens", where_, key, id, tokens_.size()));
    }
    return std::optional(static_cast<int32_t>(id));
  }

  Status ReadTokens() {
    const auto* const tokens = Find<std::vector<std::string>>("tokens");
    if (tokens == nullptr || tokens->empty() || std::ssize(*tokens) > kMaxTokenId) {
      return Corrupt(where_ + ": has no list of tokens");
    }
    tokens_ = *tokens;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!utf8::IsValid(tokens_[id])) return Corrupt(fmt::format("{}: token {} is not UTF-8", where_, id));
    }
    types_.assign(tokens_.size(), kNormal);
    if (const auto* const types = Find<std::vector<int32_t>>("token_type"); types != nullptr) {
      if (types->size() != tokens_.size()) return WrongCount("token_type", types->size());
      types_ = *types;
    }
    return OkStatus();
  }
  Status WrongCount(const char* key, size_t count) const {
    return Corrupt(
        fmt::format("{}: tokenizer.ggml.{} has {} entries for {} tokens", where_, key, count, tokens_.size()));
  }

  Json Added(size_t id) const {
    return {{"content", tokens_[id]}, {"single_word", false}, {"lstrip", false},
            {"rstrip", false},        {"normalized", false},  {"special", types_[id] != kUserDefined}};
  }
  bool IsAdded(size_t id) const {
    return types_[id] == kControl || types_[id] == kUserDefined || types_[id] == kUnknown;
  }

  Status WriteByteLevel() {
    const auto* const name = Find<std::string>("pre");
    TEMPER_ASSIGN_OR_RETURN(const GgufSteps steps, StepsOfGguf(name == nullptr ? "default" : *name, where_));
    const auto* const merges = Find<std::vector<std::string>>("merges");
    if (merges == nullptr) return Corrupt(where_ + ": has no list of merges");
    Json added = Json::array(), vocab = Json::object(), pairs = Json::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kUnused || tokens_[id].empty()) continue;
      vocab[tokens_[id]] = id;
      if (!IsAdded(id)) continue;
      added.push_back(Added(id));
      added.back()["id"] = id;
    }
    for (const std::string& merge : *merges) {
      const size_t space = merge.find(' ');
      if (space == merge.npos || !utf8::IsValid(merge)) {
        return Corrupt(fmt::format("{}: the merge {} is not two tokens", where_, Quoted(merge)));
      }
      pairs.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    files_["tokenizer.json"] = DumpJson(Json{
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", std::move(added)},
        {"normalizer", steps.normalizer},
        {"pre_tokenizer", steps.pre_tokenizer},
        {"post_processor",
         {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}}},
        {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
        {"model",
         {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", steps.ignores_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(pairs)}}}});
    config_["tokenizer_class"] = "PreTrainedTokenizerFast";
    adds_bos_ = steps.adds_bos;
    return OkStatus();
  }

  // Field numbers of sentencepiece_model.proto.
  Status WriteSentencePiece() {
    const auto* const scores = Find<std::vector<float>>("scores");
    if (scores == nullptr || scores->size() != tokens_.size()) {
      return WrongCount("scores", scores == nullptr ? 0 : scores->size());
    }
    TEMPER_ASSIGN_OR_RETURN(std::optional<int32_t> unknown, IdOf("unknown_token_id"));
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kUnknown || (!unknown && tokens_[id] == "<unk>")) unknown = static_cast<int32_t>(id);
    }
    if (!unknown) return Unsupported(where_ + ": its SentencePiece vocabulary has no token for unknown characters");
    ProtoWriter proto;
    int bytes = 0;
    Json added = Json::object();
    std::set<std::string_view> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].empty() || !seen.insert(tokens_[id]).second) {
        return Corrupt(fmt::format("{}: token {} is empty or stands twice", where_, id));
      }
      const bool is_unknown = static_cast<int32_t>(id) == *unknown;
      const int32_t type = is_unknown ? kUnknown : types_[id] == kUnknown ? kControl : types_[id];
      if (type < kNormal || type > kByte) return Corrupt(fmt::format("{}: token {} is of type {}", where_, id, type));
      bytes += type == kByte ? 1 : 0;
      ProtoWriter piece;
      piece.Text(1, tokens_[id]);
      piece.Float(2, (*scores)[id]);
      piece.Number(3, static_cast<uint64_t>(type));
      proto.Text(1, piece.bytes());
      if (type == kControl || is_unknown) added[std::to_string(id)] = Added(id);
    }
    constexpr uint64_t kBpe = 2;
    constexpr int kAllBytes = 256;
    ProtoWriter trainer, normalizer;
    trainer.Number(3, kBpe);
    trainer.Number(4, tokens_.size());
    trainer.Number(35, bytes == kAllBytes ? 1 : 0);
    trainer.Number(40, static_cast<uint64_t>(*unknown));
    trainer.Text(45, tokens_[static_cast<size_t>(*unknown)]);
    normalizer.Text(1, "identity");
    normalizer.Number(3, Flag("add_space_prefix", true) ? 1 : 0);
    normalizer.Number(4, Flag("remove_extra_whitespaces", false) ? 1 : 0);
    normalizer.Number(5, 1);
    proto.Text(2, trainer.bytes());
    proto.Text(3, normalizer.bytes());
    files_["tokenizer.model"] = proto.bytes();
    config_["tokenizer_class"] = "LlamaTokenizer";
    config_["unk_token"] = tokens_[static_cast<size_t>(*unknown)];
    config_["legacy"] = true;  // as llama.cpp, a space before each stretch of text between special tokens
    config_["added_tokens_decoder"] = std::move(added);
    adds_bos_ = true;
    return OkStatus();
  }

  Status WriteRoles() {
    Json stops = Json::array();
    for (const auto& [key, role] :
         std::initializer_list<std::pair<const char*, const char*>>{{"bos_token_id", "bos_token"},
                                                                    {"unknown_token_id", "unk_token"},
                                                                    {"padding_token_id", "pad_token"},
                                                                    {"eos_token_id", "eos_token"},
                                                                    {"eot_token_id", nullptr},
                                                                    {"eom_token_id", nullptr}}) {
      TEMPER_ASSIGN_OR_RETURN(const std::optional<int32_t> id, IdOf(key));
      if (role != nullptr && (id || !config_.contains(role)))
        config_[role] = id ? Json(tokens_[static_cast<size_t>(*id)]) : Json(nullptr);
      const bool ends = std::string_view(key).starts_with("eo");
      if (id && ends && std::find(stops.begin(), stops.end(), *id) == stops.end()) stops.push_back(*id);
    }
    config_["add_bos_token"] = Flag("add_bos_token", adds_bos_) && !config_["bos_token"].is_null();
    config_["add_eos_token"] = Flag("add_eos_token", false) && !config_["eos_token"].is_null();
    if (!stops.empty()) files_["generation_config.json"] = DumpJson(Json{{"eos_token_id", stops}}, 1) + "\n";
    return OkStatus();
  }

  void WriteTemplates() {
    constexpr std::string_view kKey = "tokenizer.chat_template";
    for (const auto& [key, value] : keys_.pairs()) {
      const auto* const text = std::get_if<std::string>(&value);
      if (text == nullptr || !key.starts_with(kKey)) continue;
      if (key == kKey) {
        files_["chat_template.jinja"] = *text;
        continue;
      }
      const std::string name = key[kKey.size()] == '.' ? key.substr(kKey.size() + 1) : "";
      const bool plain = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == name.npos;
      if (plain) files_["additional_chat_templates/" + name + ".jinja"] = *text;
    }
  }

  const GgufMetadata& keys_;
  const std::string& where_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  bool adds_bos_ = false;
  Json config_;
  std::map<std::string, std::string> files_;
};

}  // namespace

Result<std::map<std::string, std::string>> TokenizerFilesOfGguf(const GgufMetadata& keys, const std::string& where) {
  return GgufTokenizerFiles(keys, where).Run();
}

}  // namespace temper
