#include "data/tokenizer/unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace temper {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score; of the tokenizers library, and SentencePiece

}  // namespace

struct Unigram::Buffers final : Scratch {
  WordCache cache;
  std::vector<Step> steps;
  std::vector<int32_t> ids;
};

Result<std::unique_ptr<TokenModel>> Unigram::Create(Vocabulary vocabulary, std::vector<double> scores, int32_t unknown,
                                                    bool byte_fallback, const std::string& where) {
  if (unknown < 0 || !vocabulary.Has(unknown)) {
    return Corrupt(fmt::format("{}: the unknown token's id, {}, is not in the vocabulary", where, unknown));
  }
  TEMPER_ASSIGN_OR_RETURN(TokenTrie trie, TokenTrie::Create(vocabulary, where));
  std::unique_ptr<Unigram> made(new Unigram(std::move(vocabulary), std::move(trie)));
  double least = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) return Corrupt(fmt::format("{}: the score of token {} is not finite", where, id));
    least = std::min(least, scores[id]);
  }
  scores.resize(static_cast<size_t>(made->vocabulary_.limit()));
  made->scores_ = std::move(scores);
  made->unknown_ = unknown;
  made->unknown_score_ = least - kUnknownPenalty;
  made->byte_fallback_ = byte_fallback;
  made->covered_ = byte_fallback;
  for (int b = 0; byte_fallback && b < 256; ++b) {
    made->fallback_[b] = made->vocabulary_.Find(fmt::format("<0x{:02X}>", b));
    made->covered_ = made->covered_ && made->fallback_[b];
  }
  return std::unique_ptr<TokenModel>(std::move(made));
}

std::unique_ptr<TokenModel::Scratch> Unigram::MakeScratch() const {
  return std::make_unique<Buffers>();
}

void Unigram::FindBest(std::string_view word, std::vector<Step>& steps) const {
  steps.assign(word.size() + 1, Step{});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    Step& step = steps[end];
    // Of equal ways the one that is found first: its last token begins before the other's.
    if (step.begin < 0 || score > step.score) step = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t character = utf8::Length(word[begin]);
    const double so_far = steps[begin].score;
    bool known = false;  // the character is a token
    uint32_t node = TokenTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.Next(node, static_cast<unsigned char>(word[end++]));
      if (node == TokenTrie::kNone) break;
      const int32_t id = trie_.IdAt(node);
      if (id < 0) continue;
      offer(begin, end, scores_[static_cast<size_t>(id)] + so_far, id);
      known = known || end == begin + character;
    }
    if (!known) offer(begin, begin + character, unknown_score_ + so_far, unknown_);
    begin += character;
  }
}

template <typename Visit>
void Unigram::VisitBackwards(std::string_view word, std::vector<Step>& steps, Visit&& visit) const {
  FindBest(word, steps);
  for (size_t end = word.size(); end > 0;) {
    size_t begin = static_cast<size_t>(steps[end].begin);
    const int32_t id = steps[end].id;
    while (id == unknown_ && begin > 0 && steps[begin].id == unknown_) begin = static_cast<size_t>(steps[begin].begin);
    visit(word.substr(begin, end - begin), id);
    end = begin;
  }
}

bool Unigram::FallsBack(std::string_view text) const {
  return byte_fallback_ &&
         std::all_of(text.begin(), text.end(), [&](char c) { return fallback_[static_cast<unsigned char>(c)]; });
}

void Unigram::AppendFallback(std::string_view text, std::vector<int32_t>& out) const {
  // As the tokenizers library does: a run of unknown characters may be spelled like a token after all.
  if (const auto whole = vocabulary_.Find(text)) {
    out.push_back(*whole);
  } else if (FallsBack(text)) {
    for (size_t i = text.size(); i > 0; --i) out.push_back(*fallback_[static_cast<unsigned char>(text[i - 1])]);
  } else {
    out.push_back(unknown_);
  }
}

void Unigram::Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  auto& buffers = static_cast<Buffers&>(scratch);
  const bool cached = word.size() <= WordCache::kMaxBytes;
  size_t slot = 0;
  if (cached) {
    slot = buffers.cache.SlotOf(word);
    bool found = false;
    const auto ids = buffers.cache.Get(slot, word, &found);
    if (found) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
  }
  std::vector<int32_t>& ids = buffers.ids;
  ids.clear();
  VisitBackwards(word, buffers.steps, [&](std::string_view text, int32_t id) {
    if (id == unknown_) {
      AppendFallback(text, ids);
    } else {
      ids.push_back(id);
    }
  });
  std::reverse(ids.begin(), ids.end());
  if (cached) buffers.cache.Put(slot, word, ids);
  out.insert(out.end(), ids.begin(), ids.end());
}

void Unigram::AppendUnknown(std::string_view word, std::vector<std::string>& out) const {
  std::vector<Step> steps;
  std::vector<std::string> unknown;
  VisitBackwards(word, steps, [&](std::string_view text, int32_t id) {
    if (id != unknown_) return;
    const auto whole = vocabulary_.Find(text);
    if (whole == unknown_) {
      unknown.emplace_back();  // the text spells the token
    } else if (!whole && !FallsBack(text)) {
      unknown.emplace_back(text);
    }
  });
  out.insert(out.end(), unknown.rbegin(), unknown.rend());
}

}  // namespace temper
