#include "data/tokenizer/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"

namespace temper {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // ▁

// Up to this length a scan for the lowest rank beats a heap: the ranks fill two cache lines.
constexpr size_t kShortWord = 32;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
// Multiplicative hashing: the high bits of the product depend on all of the key.
uint64_t HashPair(uint64_t pair) {
  return (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> 24;
}

// Classes of characters for cuts: an ASCII character is its own.
constexpr size_t kMetaspaceClass = 128, kOtherClass = 129;

size_t ClassAt(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c < 128) return c;
  return text.substr(at).starts_with(kMetaspace) ? kMetaspaceClass : kOtherClass;
}

std::string FallbackSpelling(int byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::Create(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options,
                                         const std::string& where) {
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(vocabulary), std::move(options)));
  const BpeOptions& o = bpe->options_;
  const Vocabulary& v = bpe->vocabulary_;
  TEMPER_CHECK(merges.size() < kNoRank);
  bpe->affixes_ = !o.continuing_subword_prefix.empty() || !o.end_of_word_suffix.empty();
  TEMPER_CHECK(!(bpe->affixes_ && o.bytes_in)) << "words with affixes are spelled out";
  if (o.unk_token) {
    bpe->unk_ = v.Find(*o.unk_token);
  }
  bool covered = o.byte_fallback || o.bytes_in;  // every text has tokens
  for (int b = 0; b < 256; ++b) {
    if (o.byte_fallback) bpe->fallback_[b] = v.Find(FallbackSpelling(b));
    covered = covered && (bpe->fallback_[b] || (o.bytes_in && v.Find(ByteLevelCharacters()[b])));
  }
  if (o.unk_token && !bpe->unk_ && !covered) {
    return Corrupt(fmt::format("{}: the unknown token '{}' is not in the vocabulary", where, *o.unk_token));
  }
  if (covered) bpe->unk_.reset();

  const uint64_t capacity = std::bit_ceil(std::max<uint64_t>(16, merges.size() + merges.size() / 2));
  bpe->merges_.resize(capacity);
  bpe->merge_mask_ = capacity - 1;
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [a, b] = merges[rank];
    const auto left = v.Find(a), right = v.Find(b);
    // As the tokenizers library does: by length, without checking that b begins with the prefix.
    const size_t prefix = o.continuing_subword_prefix.size();
    if (b.size() < prefix) return Corrupt(fmt::format("{}: merge {} ('{}' '{}') lacks the prefix", where, rank, a, b));
    merged.assign(a).append(b.substr(prefix));
    const auto id = v.Find(merged);
    if (!left || !right || !id) {
      return Corrupt(fmt::format("{}: merge {} ('{}' '{}') uses '{}', which is not in the vocabulary", where, rank, a,
                                 b,
                                 !left    ? a
                                 : !right ? b
                                          : std::string_view(merged)));
    }
    bpe->InsertMerge(PairKey(*left, *right), o.ranks_are_ids ? static_cast<uint32_t>(*id) : static_cast<uint32_t>(rank),
                     *id);
  }

  if (!bpe->affixes_) {
    bpe->starts_.resize(o.bytes_in ? 256 : 128);
    for (size_t i = 0; i < bpe->starts_.size(); ++i) {
      bpe->starts_[i] = bpe->StartOf(o.bytes_in ? ByteLevelCharacters()[i] : std::string(1, static_cast<char>(i)));
    }
    // A character that is dropped brings its neighbours together: then there are no borders.
    const bool drops = !bpe->unk_ && !covered;
    if (!o.bytes_in && !o.ignore_merges && !drops) bpe->FindBorders(merges);
  }
  return bpe;
}

void Bpe::InsertMerge(uint64_t pair, uint32_t rank, int32_t id) {
  uint64_t i = HashPair(pair) & merge_mask_;
  while (merges_[i].pair != kNoPair && merges_[i].pair != pair) i = (i + 1) & merge_mask_;
  merges_[i] = {pair, rank, id};  // of duplicate pairs the last rank counts
}

const Bpe::MergeSlot* Bpe::FindMerge(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  uint64_t i = HashPair(pair) & merge_mask_;
  while (merges_[i].pair != pair) {
    if (merges_[i].pair == kNoPair) return nullptr;
    i = (i + 1) & merge_mask_;
  }
  return &merges_[i];
}

Bpe::Start Bpe::StartOf(std::string_view spelling) const {
  if (const auto id = vocabulary_.Find(spelling)) return {Start::kToken, {*id}};
  if (options_.byte_fallback) {
    Start start{Start::kFallback, {}};
    for (const char c : spelling) {
      const auto id = fallback_[static_cast<unsigned char>(c)];
      if (!id) break;
      start.ids.push_back(*id);
    }
    if (start.ids.size() == spelling.size()) return start;
  }
  return {unk_ ? Start::kUnknown : Start::kDropped, {}};
}

// A SentencePiece-style BPE has no pre-tokenizer: its word is the whole text, which no cache can hold. But between two
// characters that no merge joins, with the one at the end of its left part and the other at the begin of its right
// part, no symbol ever grows across. There the text can be cut and encoded piece by piece, with the same ids. For most
// vocabularies that is before each '▁'; for those with tokens of several words it is elsewhere.
void Bpe::FindBorders(const std::vector<Merge>& merges) {
  std::vector<Classes> joined(kClasses);
  for (const auto& [a, b] : merges) {
    if (a.empty() || b.empty()) return;
    // Symbols that are not spelled as the characters that they stand for.
    for (const std::string_view part : {a, b}) {
      if (part == options_.unk_token || (options_.byte_fallback && part.starts_with("<0x"))) return;
    }
    joined[ClassAt(a, utf8::LastStart(a))].set(ClassAt(b, 0));
  }
  // A right character without a token might be fused with an unknown one on its left.
  Classes tokens;
  for (size_t c = 0; c < starts_.size(); ++c) tokens[c] = starts_[c].kind == Start::kToken;
  tokens[kMetaspaceClass] = vocabulary_.Find(kMetaspace).has_value();
  for (const Classes& right : joined) borders_.push_back(tokens & ~right);
}

bool Bpe::Follow(TextBorder& border) const {
  return border.cut || (!borders_.empty() && borders_[ClassAt(border.left, 0)][ClassAt(border.right, 0)]);
}

// The end of the piece that starts at `begin`.
size_t Bpe::NextWord(std::string_view text, size_t begin) const {
  if (borders_.empty()) return text.size();
  size_t left = ClassAt(text, begin);
  for (size_t i = begin + utf8::Length(text[begin]); i < text.size(); i += utf8::Length(text[i])) {
    const size_t right = ClassAt(text, i);
    if (borders_[left][right]) return i;
    left = right;
  }
  return text.size();
}

void Bpe::Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  auto& buffers = static_cast<BpeScratch&>(scratch);
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = NextWord(word, begin);
    EncodeWord(word.substr(begin, end - begin), buffers, out);
    begin = end;
  }
}

void Bpe::EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  const bool cached = word.size() <= WordCache::kMaxBytes;
  size_t slot = 0;
  if (cached) {
    slot = scratch.cache_.SlotOf(word);
    bool found = false;
    const auto ids = scratch.cache_.Get(slot, word, &found);
    if (found) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
  }
  std::vector<int32_t>& ids = scratch.ids_;
  ids.clear();
  std::optional<int32_t> whole;
  if (options_.ignore_merges) {
    if (options_.bytes_in) {
      whole = vocabulary_.Find(SpelledOut(word));
    } else {
      whole = vocabulary_.Find(word);
    }
  }
  if (whole) {
    ids.push_back(*whole);
  } else {
    StartSymbols(word, ids);
    if (ids.size() <= kShortWord) {
      MergeShort(scratch);
    } else {
      MergeLong(scratch);
    }
  }
  if (cached) scratch.cache_.Put(slot, word, ids);
  out.insert(out.end(), ids.begin(), ids.end());
}

template <typename Visit>
void Bpe::VisitCharacters(std::string_view word, Visit&& visit) const {
  const auto visit_start = [&](std::string_view character, const Start& start) {
    visit(character, start.kind, std::span<const int32_t>(start.ids));
  };
  if (options_.bytes_in) {
    for (size_t i = 0; i < word.size(); ++i) {
      visit_start(word.substr(i, 1), starts_[static_cast<unsigned char>(word[i])]);
    }
    return;
  }
  std::string spelling;
  for (size_t i = 0; i < word.size();) {
    const size_t n = utf8::Length(word[i]);
    const std::string_view character = word.substr(i, n);
    if (affixes_) {
      spelling.assign(i > 0 ? options_.continuing_subword_prefix : "").append(character);
      if (i + n == word.size()) spelling += options_.end_of_word_suffix;
      visit_start(character, StartOf(spelling));
    } else if (n == 1) {
      visit_start(character, starts_[static_cast<unsigned char>(word[i])]);
    } else if (const auto id = vocabulary_.Find(character)) {
      visit(character, Start::kToken, std::span(&*id, 1));
    } else {
      visit_start(character, StartOf(character));
    }
    i += n;
  }
}

void Bpe::StartSymbols(std::string_view word, std::vector<int32_t>& ids) const {
  bool unknown = false;  // an unknown token is held back: it may grow. (A fallback is output before it, as in the
                         // tokenizers library.)
  VisitCharacters(word, [&](std::string_view, Start::Kind kind, std::span<const int32_t> start) {
    switch (kind) {
      case Start::kToken:
        if (unknown) ids.push_back(*unk_);
        unknown = false;
        ids.push_back(start[0]);
        break;
      case Start::kFallback:
        ids.insert(ids.end(), start.begin(), start.end());
        break;
      case Start::kUnknown:
        if (unknown && !options_.fuse_unk) ids.push_back(*unk_);
        unknown = true;
        break;
      case Start::kDropped:
        break;
    }
  });
  if (unknown) ids.push_back(*unk_);
}

void Bpe::AppendUnknown(std::string_view word, std::vector<std::string>& out) const {
  bool unknown = false;  // as in StartSymbols
  VisitCharacters(word, [&](std::string_view character, Start::Kind kind, std::span<const int32_t>) {
    if (kind == Start::kUnknown) {
      if (!unknown || !options_.fuse_unk) out.emplace_back();
      out.back() += character;
    }
    unknown = kind == Start::kUnknown || (unknown && kind != Start::kToken);
  });
}

void Bpe::MergeShort(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids_;
  std::vector<uint32_t>& ranks = scratch.ranks_;  // of the pair (i, i + 1)
  size_t n = ids.size();
  if (n < 2) return;
  const auto rank_at = [&](size_t i) {
    const MergeSlot* merge = i + 1 < n ? FindMerge(ids[i], ids[i + 1]) : nullptr;
    return merge ? merge->rank : kNoRank;
  };
  ranks.resize(n);
  for (size_t i = 0; i < n; ++i) ranks[i] = rank_at(i);
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = FindMerge(ids[best], ids[best + 1])->id;
    std::copy(ids.begin() + best + 2, ids.begin() + n, ids.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + n, ranks.begin() + best + 1);
    --n;
    ranks[best] = rank_at(best);
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
  }
  ids.resize(n);
}

void Bpe::MergeLong(BpeScratch& scratch) const {
  using Symbol = BpeScratch::Symbol;
  using Candidate = BpeScratch::Candidate;
  std::vector<Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& heap = scratch.heap_;
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  const auto n = static_cast<int32_t>(scratch.ids_.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    symbols.push_back({scratch.ids_[i], i - 1, i + 1 < n ? i + 1 : -1, true});
    const MergeSlot* merge = i + 1 < n ? FindMerge(scratch.ids_[i], scratch.ids_[i + 1]) : nullptr;
    if (merge) heap.push_back(Candidate::Of(merge->rank, i, merge->id));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t at) {
    const Symbol& left = symbols[at];
    if (left.next < 0) return;
    if (const MergeSlot* merge = FindMerge(left.id, symbols[left.next].id)) {
      heap.push_back(Candidate::Of(merge->rank, at, merge->id));
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    Symbol& left = symbols[top.at()];
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const MergeSlot* merge = FindMerge(left.id, right.id);
    if (!merge || merge->id != top.id) continue;  // one of the two has been merged since
    left.id = top.id;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols[left.next].prev = top.at();
    if (left.prev >= 0) push(left.prev);
    push(top.at());
  }
  scratch.ids_.clear();
  for (int32_t i = 0; i >= 0 && i < n; i = symbols[i].next) scratch.ids_.push_back(symbols[i].id);
}

}  // namespace temper
