#include "data/tokenizer/load_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tiktoken.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/vocab_merges.h"

namespace temper {

// Detects which files a folder has, and sets the tokenizer's special ids.
class TokenizerLoader {
 public:
  static Result<std::unique_ptr<Tokenizer>> Load(Env& env, const std::string& folder) {
    if (!env.IsFolder(folder))
      return NotFound(folder + ": no such folder; a tokenizer is loaded from a model's folder");
    TEMPER_ASSIGN_OR_RETURN(SpecialTokens special, SpecialTokens::Read(env, folder));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> made, LoadKind(env, folder, special));
    FillIds(special, *made);
    return made;
  }

 private:
  static Result<std::unique_ptr<Tokenizer>> LoadKind(Env& env, const std::string& folder, SpecialTokens& special) {
    const std::string json = JoinPath(folder, "tokenizer.json"), model = JoinPath(folder, "tokenizer.model");
    const std::string vocab = JoinPath(folder, "vocab.json"), merges = JoinPath(folder, "merges.txt");
    if (env.IsFile(json)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, json, kMaxTokenizerJson));
      auto parts = ParseTokenizerJson(text, special, json);
      if (parts.ok()) return std::unique_ptr<Tokenizer>(std::make_unique<Pipeline>(*std::move(parts)));
      // A damaged conversion of the SentencePiece model beside it, which has the same ids.
      if (parts.status().code() != StatusCode::kCorrupt || !env.IsFile(model)) return parts.status();
      LogWarning(fmt::format("{}; reading {} instead", parts.status().message(), model));
    }
    if (env.IsFile(model)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string proto, ReadTextFile(env, model, kMaxTokenizerJson));
      if (LooksLikeTiktoken(proto)) return OfTiktoken(proto, special, model);
      return SentencePieceTokenizer::Create(proto, special, model);
    }
    const std::string spiece = JoinPath(folder, "spiece.model");  // T5's name of it
    if (env.IsFile(spiece)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string proto, ReadTextFile(env, spiece, kMaxTokenizerJson));
      return SentencePieceTokenizer::Create(proto, special, spiece);
    }
    if (const auto ranks = FindTiktokenFile(env, folder)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, *ranks, kMaxTokenizerJson));
      return OfTiktoken(text, special, *ranks);
    }
    if (env.IsFile(vocab) && env.IsFile(merges)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string vocab_text, ReadTextFile(env, vocab, kMaxTokenizerJson));
      TEMPER_ASSIGN_OR_RETURN(const std::string merges_text, ReadTextFile(env, merges, kMaxTokenizerJson));
      TEMPER_ASSIGN_OR_RETURN(PipelineParts parts, ParseVocabAndMerges(vocab_text, merges_text, special, folder));
      return std::unique_ptr<Tokenizer>(std::make_unique<Pipeline>(std::move(parts)));
    }
    return NotFound(folder +
                    ": no tokenizer: neither tokenizer.json nor tokenizer.model (SentencePiece or tiktoken) nor "
                    "vocab.json with merges.txt nor another name of these. Copy the tokenizer's files from the model's "
                    "page into this folder");
  }

  static Result<std::unique_ptr<Tokenizer>> OfTiktoken(std::string_view text, SpecialTokens& special,
                                                       const std::string& path) {
    TEMPER_ASSIGN_OR_RETURN(TiktokenFiles files, ParseTiktoken(text, special, path));
    return std::unique_ptr<Tokenizer>(std::make_unique<Pipeline>(std::move(files.parts)));
  }

  // The tokenizer's files come first, also with "null"; the model's ids only count if they state nothing.
  static std::optional<int32_t> IdOf(const SpecialRole& role, std::optional<int32_t> fallback,
                                     const Tokenizer& tokenizer) {
    if (role.token) return tokenizer.TokenToId(role.token->content);
    if (role.stated || !fallback || tokenizer.IdToToken(*fallback).empty()) return std::nullopt;
    return fallback;
  }

  static void FillIds(const SpecialTokens& special, Tokenizer& tokenizer) {
    std::optional<int32_t> eos_id;
    if (!special.eos_ids.empty()) eos_id = special.eos_ids[0];
    tokenizer.bos_ = IdOf(special.bos, special.bos_id, tokenizer);
    tokenizer.eos_ = IdOf(special.eos, eos_id, tokenizer);
    tokenizer.pad_ = IdOf(special.pad, special.pad_id, tokenizer);
    std::vector<int32_t>& stops = tokenizer.stop_ids_;
    if (tokenizer.eos_) stops.push_back(*tokenizer.eos_);
    for (const int32_t id : special.eos_ids) {
      if (!tokenizer.IdToToken(id).empty()) stops.push_back(id);
    }
    std::sort(stops.begin(), stops.end());
    stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  }
};

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(Env& env, const std::string& folder) {
  return TokenizerLoader::Load(env, folder);
}

}  // namespace temper
