#include "data/packing.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "data/shuffle.h"

namespace temper {
namespace {

// Calls body(begin, end, per_epoch) for each set: its place in `samples`, and how many an epoch takes of it.
template <class Body>
void ForSets(std::span<const int32_t> samples, const std::vector<SamplePasses>& passes, const Body& body) {
  size_t begin = 0;
  for (size_t s = 0; s < std::max<size_t>(passes.size(), 1); ++s) {
    const bool last = s + 1 >= passes.size();
    const auto end =
        last ? samples.end() : std::lower_bound(samples.begin(), samples.end(), passes[s + 1].first_sample);
    const auto place = static_cast<size_t>(end - samples.begin());
    const auto n = static_cast<double>(place - begin);
    const double wanted = passes.empty() ? n : std::round(passes[s].passes * n);
    if (place > begin) body(begin, place, static_cast<size_t>(std::max(wanted, 1.0)));
    begin = place;
  }
}

// Of tokens with those before them in a document, itself included.
double PairsOfDocument(int64_t length) {
  return 0.5 * static_cast<double>(length) * static_cast<double>(length + 1);
}

}  // namespace

int64_t SamplesPerEpoch(std::span<const int32_t> samples, const std::vector<SamplePasses>& passes) {
  int64_t sum = 0;
  ForSets(samples, passes, [&](size_t, size_t, size_t per_epoch) { sum += static_cast<int64_t>(per_epoch); });
  return sum;
}

Status CheckPasses(std::span<const int32_t> samples, const std::vector<SamplePasses>& passes) {
  const int64_t drawn = SamplesPerEpoch(samples, passes);
  if (drawn < std::numeric_limits<int32_t>::max()) return OkStatus();
  return InvalidArgument(fmt::format(
      "an epoch has {} samples, and less than 2^31 are possible: lower the passes of the data files", drawn));
}

Packing::Packing(const TokenStore& store, std::span<const int32_t> samples, const PackingOptions& options)
    : options_(options), ids_(samples.begin(), samples.end()) {
  TEMPER_CHECK(options.max_seq_len > 0 && options.max_seq_len < std::numeric_limits<int32_t>::max())
      << "max_seq_len " << options.max_seq_len;
  const int64_t drawn = SamplesPerEpoch(samples, options.passes);
  TEMPER_CHECK(drawn < std::numeric_limits<int32_t>::max()) << drawn << " samples";
  const auto n = static_cast<size_t>(drawn);
  const auto max_len = static_cast<size_t>(options.max_seq_len);
  lengths_.reserve(ids_.size());
  by_length_.assign(max_len + 2, 0);
  for (const int32_t id : ids_) {
    const TokenSample sample = store.sample(id);
    const int64_t length = sample.length();
    TEMPER_CHECK(length <= options.max_seq_len)
        << "sample " << id << " of " << length << " tokens in rows of " << options.max_seq_len;
    if (sample.PartEnd(0) != length && pairs_.empty()) {
      for (const int32_t before : lengths_) pairs_.push_back(PairsOfDocument(before));
      pairs_.reserve(ids_.size());
    }
    lengths_.push_back(static_cast<int32_t>(length));
    if (sample.PartEnd(0) == length && pairs_.empty()) continue;
    double& pairs = pairs_.emplace_back(0);
    for (int64_t begin = 0, end = 0; begin < length; begin = end) {
      end = sample.PartEnd(begin);
      pairs += PairsOfDocument(end - begin);
    }
  }
  size_t largest_part = 0;
  ForSets(samples, options.passes, [&](size_t begin, size_t end, size_t per_epoch) {
    sets_.push_back({begin, end, per_epoch});
    if (per_epoch % (end - begin) != 0) largest_part = std::max(largest_part, end - begin);
  });
  order_of_set_.resize(largest_part);
  store.LetGo();
  order_.resize(n);
  row_of_.resize(n);
  placed_.resize(n);
  row_begin_.resize(n + 1);
  next_row_.resize(n);
  room_.resize(max_len + 1);
  room_bits_.resize(max_len / 64 + 1);
  row_order_.reserve(n);
  Pack(/*seed=*/0, /*epoch=*/0);  // counts the rows
}

double Packing::efficiency() const {
  if (rows_ == 0) return 0;
  return static_cast<double>(tokens_) / (static_cast<double>(rows_) * static_cast<double>(options_.max_seq_len));
}

Bytes Packing::memory() const {
  const auto bytes = [](const auto&... arrays) {
    return static_cast<int64_t>(((arrays.capacity() * sizeof(arrays[0])) + ...));
  };
  return Bytes{bytes(ids_, lengths_, pairs_, order_of_set_, order_, by_length_, row_of_, room_, next_row_, room_bits_,
                     row_begin_, placed_, row_order_)};
}

double Packing::attended_pairs() const {
  double sum = 0;
  for (const int32_t i : order_) {
    const auto at = static_cast<size_t>(i);
    sum += pairs_.empty() ? PairsOfDocument(lengths_[at]) : pairs_[at];
  }
  return sum;
}

void Packing::Draw(uint64_t seed, int64_t epoch) {
  auto out = placed_.begin();
  for (const auto& [begin, end, per_epoch] : sets_) {
    const size_t n = end - begin, part = per_epoch % n;
    for (size_t pass = 0; pass < per_epoch / n; ++pass) {
      std::iota(out, out + static_cast<int64_t>(n), static_cast<int32_t>(begin));
      out += static_cast<int64_t>(n);
    }
    if (part == 0) continue;
    const std::span order = std::span(order_of_set_).first(n);
    std::iota(order.begin(), order.end(), static_cast<int32_t>(begin));
    Shuffle(seed, "data.passes", static_cast<int64_t>(begin), order);  // an order of its own for each set
    const size_t first = (static_cast<size_t>(epoch) % n) * part % n;
    for (size_t i = 0; i < part; ++i) *out++ = order[(first + i) % n];
  }
}

void Packing::Pack(uint64_t seed, int64_t epoch) {
  const size_t n = placed_.size();
  // placed_ serves as the shuffled list that the counting sort reads: ties are broken by its order.
  Draw(seed, epoch);
  if (options_.shuffle) Shuffle(seed, "data.samples", epoch, placed_);
  if (options_.packing) {
    std::fill(by_length_.begin(), by_length_.end(), 0);
    const auto bucket = [&](int32_t i) {
      return static_cast<size_t>(options_.max_seq_len - lengths_[static_cast<size_t>(i)]);
    };
    for (const int32_t i : placed_) ++by_length_[bucket(i) + 1];
    std::partial_sum(by_length_.begin(), by_length_.end(), by_length_.begin());
    for (const int32_t i : placed_) order_[static_cast<size_t>(by_length_[bucket(i)]++)] = i;
    Place();
  } else {
    order_ = placed_;
    std::iota(row_of_.begin(), row_of_.end(), 0);
    rows_ = static_cast<int64_t>(n);
  }
  tokens_ = 0;
  for (const int32_t i : order_) tokens_ += lengths_[static_cast<size_t>(i)];
  // Counting sort by row: within a row the samples stay in order_'s order.
  std::fill(row_begin_.begin(), row_begin_.end(), 0);
  for (const int32_t row : row_of_) ++row_begin_[static_cast<size_t>(row) + 1];
  std::partial_sum(row_begin_.begin(), row_begin_.end(), row_begin_.begin());
  for (size_t i = 0; i < n; ++i) {
    placed_[static_cast<size_t>(row_begin_[static_cast<size_t>(row_of_[i])]++)] = ids_[static_cast<size_t>(order_[i])];
  }
  // The begins have become the ends: shift them back.
  std::copy_backward(row_begin_.begin(), row_begin_.end() - 1, row_begin_.end());
  row_begin_[0] = 0;
  row_order_.resize(static_cast<size_t>(rows_));
  std::iota(row_order_.begin(), row_order_.end(), 0);
  if (options_.shuffle) Shuffle(seed, "data.rows", epoch, row_order_);
}

void Packing::Place() {
  constexpr int32_t kNone = -1;
  std::fill(room_.begin(), room_.end(), kNone);
  std::fill(room_bits_.begin(), room_bits_.end(), 0);
  const auto push = [&](int32_t row, size_t room) {
    next_row_[static_cast<size_t>(row)] = room_[room];
    room_[room] = row;
    room_bits_[room / 64] |= uint64_t{1} << (room % 64);
  };
  // The smallest free room of at least `want` in any row; scans 32 words at most for rows of 2,048.
  const auto find = [&](size_t want) -> size_t {
    size_t word = want / 64;
    uint64_t bits = room_bits_[word] & (~uint64_t{0} << (want % 64));
    while (bits == 0) {
      if (++word == room_bits_.size()) return room_.size();
      bits = room_bits_[word];
    }
    return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  };
  int32_t rows = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const auto length = static_cast<size_t>(lengths_[static_cast<size_t>(order_[i])]);
    size_t room = find(length);
    int32_t row;
    if (room == room_.size()) {
      row = rows++;
      room = static_cast<size_t>(options_.max_seq_len);
    } else {
      row = room_[room];
      room_[room] = next_row_[static_cast<size_t>(row)];
      if (room_[room] == kNone) room_bits_[room / 64] &= ~(uint64_t{1} << (room % 64));
    }
    row_of_[i] = row;
    if (room > length) push(row, room - length);
  }
  rows_ = rows;
}

}  // namespace temper
