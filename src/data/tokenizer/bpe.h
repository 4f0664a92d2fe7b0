// Bpe: byte-pair encoding of one word, with the ids of the tokenizers library's BPE model.
//
// A word begins as its characters; the adjacent pair with the lowest merge rank (the leftmost among equals) becomes one
// symbol, until no pair is in the merge table. O(n log n) in the word's length.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/text_border.h"
#include "data/tokenizer/token_model.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/word_cache.h"

namespace temper {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;  // spelled before every character of a word but the first
  std::string end_of_word_suffix;         // spelled after the last
  bool fuse_unk = false;                  // a run of unknown characters is one unknown token
  bool byte_fallback = false;             // an unknown character is spelled "<0xE2><0x96>..." if the vocabulary can
  bool ignore_merges = false;             // a word that is a token is that token, regardless of the merges
  // Words come as raw bytes; byte b stands for its byte-level character. Saves writing the text out in that alphabet.
  bool bytes_in = false;
  // A merge's rank is the id of what it makes, as in tiktoken, not its place in the list: of two merges that make the
  // same token the left one comes first, whatever their parts.
  bool ranks_are_ids = false;
};

// The cache holds words of one Bpe.
class BpeScratch final : public TokenModel::Scratch {
 private:
  friend class Bpe;
  struct Symbol {
    int32_t id;
    int32_t prev, next;  // -1: none
    bool alive;
  };
  struct Candidate {
    uint64_t order;  // rank, then place: one comparison
    int32_t id;

    static Candidate Of(uint32_t rank, int32_t at, int32_t id) {
      return {uint64_t{rank} << 32 | static_cast<uint32_t>(at), id};
    }
    int32_t at() const { return static_cast<int32_t>(order); }
  };
  WordCache cache_;
  std::vector<int32_t> ids_;
  std::vector<uint32_t> ranks_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class Bpe final : public TokenModel {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;

  // A merge's rank is its index, if options say no other. Every merge's parts and result must be tokens. `where` names
  // the file in errors.
  static Result<std::unique_ptr<Bpe>> Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                             BpeOptions options, const std::string& where);

  std::unique_ptr<Scratch> MakeScratch() const override { return std::make_unique<BpeScratch>(); }
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const override;
  bool Follow(TextBorder& border) const override;
  std::optional<int32_t> unknown() const override { return unk_; }
  void AppendUnknown(std::string_view word, std::vector<std::string>& out) const override;

 private:
  // The ids of a character before any merge.
  struct Start {
    enum Kind : uint8_t { kDropped, kToken, kFallback, kUnknown } kind = kDropped;
    std::vector<int32_t> ids;  // of kToken (one) and kFallback (one per byte)
  };
  struct MergeSlot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  Bpe(Vocabulary vocabulary, BpeOptions options) : TokenModel(std::move(vocabulary)), options_(std::move(options)) {}

  void InsertMerge(uint64_t pair, uint32_t rank, int32_t id);
  const MergeSlot* FindMerge(int32_t left, int32_t right) const;
  Start StartOf(std::string_view spelling) const;
  void FindBorders(const std::vector<Merge>& merges);
  size_t NextWord(std::string_view text, size_t begin) const;
  void EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  // Calls visit(character, kind, ids), as of Start, for each character of a word, or byte of one of bytes.
  template <typename Visit>
  void VisitCharacters(std::string_view word, Visit&& visit) const;
  void StartSymbols(std::string_view word, std::vector<int32_t>& ids) const;
  void MergeShort(BpeScratch& scratch) const;
  void MergeLong(BpeScratch& scratch) const;

  BpeOptions options_;
  std::optional<int32_t> unk_;  // as unknown()
  bool affixes_ = false;        // characters are spelled with a prefix or suffix
  std::vector<Start> starts_;   // of bytes (bytes_in) or ASCII characters
  // Whether a word may be cut between two characters, by their classes; see FindBorders. Empty: nowhere.
  static constexpr size_t kClasses = 130;  // ASCII, '▁', all others
  using Classes = std::bitset<kClasses>;
  std::vector<Classes> borders_;  // of the left character: the right ones
  std::optional<int32_t> fallback_[256];
  std::vector<MergeSlot> merges_;  // open addressing, a power of two
  uint64_t merge_mask_ = 0;
};

}  // namespace temper
