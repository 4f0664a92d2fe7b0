#include "data/tokenizer/gguf_vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <functional>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/utf8.h"
#include "data/tokenizer/gguf_pre_tokenizer.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tiktoken.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/vocab_merges.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr std::string_view kMarkedSpace = "\xE2\x96\x81";  // ▁
// Scores of tokens that no merge makes: added ones, and those that only fill the table.
constexpr float kScoreOfAdded = -1000, kScoreOfPadding = -10000;

// llama.cpp's types of tokens (llama.h, enum llama_token_type).
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Token {
  std::string text;
  float score = kScoreOfPadding;
  int32_t type = kUnused;
};

// Tokens that steer a model although their files call them ordinary. Source: conversion/base.py,
// does_token_look_special.
bool LooksSpecial(std::string_view text) {
  for (const char* known : {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}) {
    if (text == known) return true;
  }
  return (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<｜") && text.ends_with("｜>")) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

std::string WithSpaces(std::string text) {
  for (size_t at = text.find(kMarkedSpace); at != text.npos; at = text.find(kMarkedSpace, at + 1)) {
    text.replace(at, kMarkedSpace.size(), " ");
  }
  return text;
}

bool IsByteToken(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
}

// What a tokenizer.json, or vocab.json with merges.txt, holds.
struct BpeFiles {
  PipelineParts parts;
  Json normalizer, pre_tokenizer, model;  // model: of tokenizer.json, null otherwise
  std::string merges_text;                // of merges.txt
  std::string where;
  bool ignores_merges = false;

  Result<std::vector<Bpe::Merge>> Merges() const {
    return model.is_null() ? ParseMerges(merges_text, where) : MergesFromJson(model, where);
  }
};

const Json& MemberOf(const Json& object, const char* key) {
  static const Json null;
  const Json* found = FindValue(object, key);
  return found != nullptr ? *found : null;
}

Result<BpeFiles> ReadJsonTokenizer(const std::string& text, const SpecialTokens& special, const std::string& path) {
  BpeFiles files{.where = path};
  TEMPER_ASSIGN_OR_RETURN(files.parts, ParseTokenizerJson(text, special, path));
  TEMPER_ASSIGN_OR_RETURN(Json json, ParseJson(text, path));
  TEMPER_ASSIGN_OR_RETURN(const auto steps, StepsOfClass(json, special, path));
  if (steps) json.update(*steps);
  files.normalizer = MemberOf(json, "normalizer");
  files.pre_tokenizer = MemberOf(json, "pre_tokenizer");
  files.model = MemberOf(json, "model");
  TEMPER_ASSIGN_OR_RETURN(const std::string type, ModelTypeOf(json, path));
  if (type != "BPE") {
    return Unsupported(fmt::format(
        "{}: the tokenizer's model is {}, and only BPE is written to GGUF files. Export a Hugging Face folder "
        "instead, with --format hf",
        path, type));
  }
  TEMPER_ASSIGN_OR_RETURN(files.ignores_merges, BoolOr(files.model, "ignore_merges", false, path));
  return files;
}

// Ranks of pairs, and how a token's own text merges.
class Merging {
 public:
  explicit Merging(const std::vector<Bpe::Merge>& merges) {
    ranks_.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      ranks_.emplace(Key(merges[rank].first, merges[rank].second), static_cast<int64_t>(rank));
    }
  }
  // The rank of the merge that completes the token; -1 for a single character, nullopt if merges end before.
  std::optional<int64_t> RankOf(std::string_view token) const {
    std::vector<std::string_view> symbols;
    for (size_t at = 0; at < token.size();) {
      const size_t length = std::max<size_t>(1, utf8::Length(token[at]));
      symbols.push_back(token.substr(at, length));
      at += length;
    }
    int64_t last = -1;
    while (symbols.size() > 1) {
      int64_t best = -1;
      size_t place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks_.find(Key(symbols[i], symbols[i + 1]));
        if (found == ranks_.end() || (best >= 0 && found->second >= best)) continue;
        best = found->second;
        place = i;
      }
      if (best < 0) return std::nullopt;
      symbols[place] = {symbols[place].data(), symbols[place].size() + symbols[place + 1].size()};
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
      last = best;
    }
    return last;
  }

 private:
  static std::string Key(std::string_view left, std::string_view right) {
    return std::string(left).append(" ").append(right);
  }
  std::unordered_map<std::string, int64_t> ranks_;
};

class Describer {
 public:
  Describer(Env& env, const std::string& folder, const Tokenizer& tokenizer, int64_t rows)
      : env_(env), folder_(folder), tokenizer_(tokenizer), tokens_(static_cast<size_t>(rows)) {}

  Result<GgufVocabulary> Run() {
    TEMPER_RETURN_IF_ERROR(Describe());
    if (tokenizer_.vocab_size() > std::ssize(tokens_)) {
      Notice(fmt::format("{}: the tokenizer has {} tokens, the embedding {} rows: those behind are left out", folder_,
                         tokenizer_.vocab_size(), tokens_.size()));
    }
    NameOthers();
    WriteTokens();
    TEMPER_RETURN_IF_ERROR(WriteSpecialTokens());
    return std::move(out_);
  }

 private:
  void Set(const char* key, GgufValue value) {
    out_.metadata.Set(std::string("tokenizer.ggml.") + key, std::move(value));
  }
  void Notice(std::string text) { out_.notices.push_back(std::move(text)); }

  // In the order of TokenizerLoader.
  Status Describe() {
    const std::string json = JoinPath(folder_, "tokenizer.json"), model = JoinPath(folder_, "tokenizer.model");
    TEMPER_ASSIGN_OR_RETURN(SpecialTokens special, SpecialTokens::Read(env_, folder_));
    if (env_.IsFile(json)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env_, json, kMaxTokenizerJson));
      auto files = ReadJsonTokenizer(text, special, json);
      if (files.ok()) return DescribeBpe(*files);
      if (files.status().code() != StatusCode::kCorrupt || !env_.IsFile(model)) return files.status();
    }
    if (env_.IsFile(model)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env_, model, kMaxTokenizerJson));
      return LooksLikeTiktoken(text) ? DescribeTiktoken(text, special, model) : DescribeSentencePiece(text, model);
    }
    const std::string spiece = JoinPath(folder_, "spiece.model");
    if (env_.IsFile(spiece)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env_, spiece, kMaxTokenizerJson));
      return DescribeSentencePiece(text, spiece);
    }
    if (const auto ranks = FindTiktokenFile(env_, folder_)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env_, *ranks, kMaxTokenizerJson));
      return DescribeTiktoken(text, special, *ranks);
    }
    const std::string merges = JoinPath(folder_, "merges.txt");
    BpeFiles files{.where = merges};
    TEMPER_ASSIGN_OR_RETURN(const std::string vocab,
                            ReadTextFile(env_, JoinPath(folder_, "vocab.json"), kMaxTokenizerJson));
    TEMPER_ASSIGN_OR_RETURN(files.merges_text, ReadTextFile(env_, merges, kMaxTokenizerJson));
    TEMPER_ASSIGN_OR_RETURN(files.parts, ParseVocabAndMerges(vocab, files.merges_text, special, folder_));
    TEMPER_ASSIGN_OR_RETURN(const VocabAndMergesSteps steps, StepsOfVocabAndMerges(special, folder_));
    files.normalizer = steps.normalizer;
    files.pre_tokenizer = steps.pre_tokenizer;
    return DescribeBpe(files);
  }

  Status DescribeBpe(const BpeFiles& files) {
    const Vocabulary& vocabulary = files.parts.model->vocabulary();
    for (int32_t id = 0; id < std::min<int64_t>(std::ssize(tokens_), vocabulary.limit()); ++id) {
      if (!vocabulary.Has(id)) continue;
      tokens_[static_cast<size_t>(id)] = {std::string(vocabulary.Spelling(id)), 0, kNormal};
    }
    for (const AddedToken& token : files.parts.added.tokens()) Add(token);
    const bool bytes = DumpJson(files.pre_tokenizer).find("\"ByteLevel\"") != std::string::npos;
    return bytes ? DescribeByteLevel(files) : DescribeSpaceMarks(files);
  }

  void Add(const AddedToken& token) {
    if (token.id < 0 || token.id >= std::ssize(tokens_)) return;
    const bool control = token.special || LooksSpecial(token.content);
    tokens_[static_cast<size_t>(token.id)] = {control ? token.content : WithSpaces(token.content), kScoreOfAdded,
                                              control ? kControl : kUserDefined};
  }

  Status DescribeByteLevel(const BpeFiles& files) {
    TEMPER_ASSIGN_OR_RETURN(const auto alike, FindGgufPreTokenizers(files.pre_tokenizer, files.where));
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> merges, files.Merges());
    const auto fits = std::find_if(alike.begin(), alike.end(),
                                   [&](const auto& p) { return p.ignores_merges == files.ignores_merges; });
    if (fits == alike.end()) TEMPER_RETURN_IF_ERROR(ExpectMergesMakeAll(merges, files, alike.front().name));
    const std::string normalizer = files.normalizer.is_null() ? "" : files.normalizer.value("type", "");
    if (normalizer == "NFC") {
      Notice("llama.cpp does not compose characters (NFC): texts whose letters and accents are apart get other ids");
    } else if (!normalizer.empty()) {
      return Unsupported(
          fmt::format("{}: llama.cpp has no normalizer {} for byte-level BPE: a GGUF file cannot hold this "
                      "tokenizer. Export a Hugging Face folder instead, with --format hf",
                      files.where, Quoted(normalizer)));
    }
    Set("model", std::string("gpt2"));
    Set("pre", fits == alike.end() ? alike.front().name : fits->name);
    std::vector<std::string> lines;
    lines.reserve(merges.size());
    for (const auto& [left, right] : merges) lines.push_back(std::string(left).append(" ").append(right));
    merges_ = std::move(lines);
    return OkStatus();
  }

  // Whether a word that is a token comes out as that token makes no difference where the merges make all tokens.
  Status ExpectMergesMakeAll(const std::vector<Bpe::Merge>& merges, const BpeFiles& files,
                             const std::string& name) const {
    const Merging merging(merges);
    for (const Token& token : tokens_) {
      if (token.type != kNormal || merging.RankOf(token.text)) continue;
      return Unsupported(
          fmt::format("{}: ignore_merges is {}, llama.cpp's pre-tokenizer {} is for the other, and merges do not make "
                      "the token {}: a "
                      "GGUF file cannot hold this tokenizer. Export a Hugging Face folder instead, with --format hf",
                      files.where, files.ignores_merges, name, Quoted(token.text)));
    }
    return OkStatus();
  }

  // BPE of a text whose spaces are "▁". llama.cpp joins the two neighbours whose token has the highest score; with a
  // token's score the lower the later its merge, both join the same: a token that its own text merges into never lies
  // before them in two parts that no merge joins.
  Status DescribeSpaceMarks(const BpeFiles& files) {
    TEMPER_RETURN_IF_ERROR(ExpectSpaceMarks(files));
    TEMPER_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> merges, files.Merges());
    const Merging merging(merges);
    std::vector<std::string> apart;
    bool has_bytes = false;
    for (Token& token : tokens_) {
      if (token.type != kNormal) continue;
      if (IsByteToken(token.text)) {
        token = {token.text, 0, kByte};
        has_bytes = true;
        continue;
      }
      const auto rank = merging.RankOf(token.text);
      if (!rank) apart.push_back(token.text);
      token.score = rank ? -static_cast<float>(*rank + 1) : -static_cast<float>(merges.size() + 1);
    }
    if (!apart.empty()) {
      Notice(fmt::format("{}: merges do not make {} tokens, the first is {}: llama.cpp may use them where they fit",
                         files.where, apart.size(), Quoted(apart.front())));
    }
    if (!has_bytes) {
      Notice(fmt::format("{}: the vocabulary has no tokens for bytes: llama.cpp fails at characters that it lacks",
                         files.where));
    }
    return FinishSentencePiece();
  }

  // Only the steps that replace spaces, and those that do nothing then.
  Status ExpectSpaceMarks(const BpeFiles& files) const {
    std::vector<std::string> others;
    const std::function<void(const Json&, const char*)> visit = [&](const Json& step, const char* list) {
      if (step.is_null()) return;
      const std::string type = step.value("type", "");
      const auto inner = step.find(list);
      if (type == "Sequence" && inner != step.end()) {
        for (const Json& one : *inner) visit(one, list);
        return;
      }
      const Json* const pattern = FindValue(step, "pattern");
      const bool of_space = pattern != nullptr && *pattern == Json{{"String", " "}};
      const bool known =
          (type == "Prepend" && step.value("prepend", "") == kMarkedSpace) ||
          (type == "Replace" && of_space && step.value("content", "") == kMarkedSpace) ||
          (type == "Metaspace" && step.value("replacement", "") == kMarkedSpace && !Splits(step, files)) ||
          (type == "Split" && of_space);
      if (!known) others.push_back(type);
    };
    visit(files.normalizer, "normalizers");
    visit(files.pre_tokenizer, "pretokenizers");
    if (others.empty()) return OkStatus();
    return Unsupported(fmt::format(
        "{}: llama.cpp's SentencePiece has no steps {}: a GGUF file cannot hold this tokenizer. Export a Hugging Face "
        "folder instead, with --format hf",
        files.where, fmt::join(others, ", ")));
  }

  // Whether cutting at spaces keeps merges from crossing them.
  static bool Splits(const Json& metaspace, const BpeFiles& files) {
    if (!metaspace.value("split", true)) return false;
    const Vocabulary& vocabulary = files.parts.model->vocabulary();
    for (const auto& [token, id] : vocabulary.ids()) {
      if (token.find(kMarkedSpace, 1) != token.npos) return true;
    }
    return false;
  }

  Status DescribeTiktoken(const std::string& text, SpecialTokens special, const std::string& path) {
    TEMPER_ASSIGN_OR_RETURN(TiktokenFiles ranks, ParseTiktoken(text, special, path));
    return DescribeBpe({.parts = std::move(ranks.parts),
                        .normalizer = std::move(ranks.normalizer),
                        .pre_tokenizer = std::move(ranks.pre_tokenizer),
                        .merges_text = std::move(ranks.merges),
                        .where = path,
                        .ignores_merges = true});
  }

  Status DescribeSentencePiece(const std::string& proto, const std::string& path) {
    const ModelProtoFacts facts = FactsOf(proto);
    if (!facts.is_bpe || facts.normalizes || facts.joins_spaces) {
      return Unsupported(fmt::format(
          "{}: llama.cpp's SentencePiece is BPE without a normalizer, this model {}: a GGUF file cannot hold this "
          "tokenizer. Export a Hugging Face folder instead, with --format hf",
          path,
          !facts.is_bpe      ? "is not BPE (but unigram, words or characters)"
          : facts.normalizes ? "replaces characters"
                             : "joins spaces (remove_extra_whitespaces)"));
    }
    sentencepiece::SentencePieceProcessor processor;
    try {
      const auto status = processor.LoadFromSerializedProto(proto);
      if (!status.ok()) return Corrupt(fmt::format("{}: not a SentencePiece model: {}", path, status.ToString()));
    } catch (const std::exception& e) {
      return Corrupt(fmt::format("{}: not a SentencePiece model: {}", path, e.what()));
    }
    const int64_t known = std::min<int64_t>(std::ssize(tokens_), tokenizer_.vocab_size());
    for (int32_t id = 0; id < known; ++id) {
      Token& token = tokens_[static_cast<size_t>(id)];
      const bool piece = id < processor.GetPieceSize();
      if (piece) {
        token = {processor.IdToPiece(id), processor.GetScore(id),
                 processor.IsUnknown(id)   ? kUnknown
                 : processor.IsControl(id) ? kControl
                 : processor.IsUnused(id)  ? kUnused
                 : processor.IsByte(id)    ? kByte
                                           : kNormal};
      }
      const std::string text = tokenizer_.IdToToken(id);
      const bool special = tokenizer_.IsSpecial(id);
      if (text.empty() || (piece && !special && text == token.text)) continue;
      Add({.content = text, .id = id, .special = special});
    }
    return FinishSentencePiece();
  }

  Status FinishSentencePiece() {
    Set("model", std::string("llama"));
    Set("pre", std::string("default"));
    has_scores_ = true;
    // What a text without spaces begins with.
    TEMPER_ASSIGN_OR_RETURN(const auto ids, tokenizer_.Encode("a", {.add_special = false}));
    const bool prefix = !ids.empty() && tokenizer_.IdToToken(ids.front()).starts_with(kMarkedSpace);
    out_.metadata.Set("tokenizer.ggml.add_space_prefix", prefix);
    return OkStatus();
  }

  // llama.cpp wants tokens that all differ.
  void NameOthers() {
    std::unordered_map<std::string, size_t> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      Token& token = tokens_[id];
      if (token.text.empty()) token = {fmt::format("[PAD{}]", id), kScoreOfPadding, kUnused};
      if (!seen.emplace(token.text, id).second) token.text = fmt::format("[{}#{}]", token.text, id);
    }
  }

  void WriteTokens() {
    std::vector<std::string> texts;
    std::vector<float> scores;
    std::vector<int32_t> types;
    for (Token& token : tokens_) {
      texts.push_back(std::move(token.text));
      scores.push_back(token.score);
      types.push_back(token.type);
    }
    Set("tokens", std::move(texts));
    if (has_scores_) Set("scores", std::move(scores));
    Set("token_type", std::move(types));
    if (!has_scores_) Set("merges", std::move(merges_));
  }

  Status WriteSpecialTokens() {
    const auto id = [&](const char* key, std::optional<int32_t> token) {
      if (token && *token < std::ssize(tokens_)) Set(key, static_cast<uint32_t>(*token));
    };
    id("bos_token_id", tokenizer_.bos());
    id("unknown_token_id", tokenizer_.unknown());
    id("padding_token_id", tokenizer_.pad());
    // What ends a text: end of sequence, of turn, of message; llama.cpp stops at each.
    std::vector<int32_t> stops = tokenizer_.stop_ids();
    const auto eos = tokenizer_.eos();
    if (eos) std::stable_partition(stops.begin(), stops.end(), [&](int32_t stop) { return stop == *eos; });
    const char* const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < std::min(stops.size(), std::size(keys)); ++i) id(keys[i], stops[i]);
    if (stops.size() > std::size(keys)) {
      std::vector<std::string> left;
      for (size_t i = std::size(keys); i < stops.size(); ++i) left.push_back(Quoted(tokenizer_.IdToToken(stops[i])));
      Notice(
          fmt::format("a GGUF file has room for {} tokens that end a text; llama.cpp stops at {} only if it knows them "
                      "by name",
                      std::size(keys), fmt::join(left, ", ")));
    }
    return WriteFrame();
  }

  // The tokens put around a text.
  Status WriteFrame() {
    TEMPER_ASSIGN_OR_RETURN(const auto bare, tokenizer_.Encode("a", {.add_special = false}));
    TEMPER_ASSIGN_OR_RETURN(std::vector<int32_t> framed, tokenizer_.Encode("a"));
    const auto bos = tokenizer_.bos(), eos = tokenizer_.eos();
    const bool add_bos = bos && framed.size() > bare.size() && framed.front() == *bos;
    if (add_bos) framed.erase(framed.begin());
    const bool add_eos = eos && framed.size() > bare.size() && framed.back() == *eos;
    if (add_eos) framed.pop_back();
    if (framed != bare) {
      return Unsupported(fmt::format(
          "{}: the tokenizer puts other tokens around a text than its bos_token and eos_token, which GGUF files cannot "
          "say. Export a Hugging Face folder instead, with --format hf",
          folder_));
    }
    Set("add_bos_token", add_bos);
    Set("add_eos_token", add_eos);
    return OkStatus();
  }

  Env& env_;
  const std::string& folder_;
  const Tokenizer& tokenizer_;
  std::vector<Token> tokens_;  // by id
  std::vector<std::string> merges_;
  bool has_scores_ = false;
  GgufVocabulary out_;
};

}  // namespace

Result<GgufVocabulary> DescribeVocabulary(Env& env, const std::string& folder, const Tokenizer& tokenizer,
                                          int64_t rows) {
  return Describer(env, folder, tokenizer, rows).Run();
}

}  // namespace temper
