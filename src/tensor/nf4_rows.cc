#include "tensor/nf4_rows.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// The index of an absmax that is `x` times its group's scale, -1 <= x <= 1. As bitsandbytes does it on processors: x
// goes to the nearest of 65,536 steps, that to the nearest number.
uint8_t AbsmaxIndex(float x) {
  constexpr float kSteps = 65535;
  const auto step = static_cast<int>((x + 1) * 0.5f * kSteps + 0.5f);
  const float rounded = static_cast<float>(step) * 2 / kSteps - 1;
  constexpr auto& numbers = kNf4AbsmaxNumbers;
  const auto above = std::lower_bound(numbers.begin() + 1, numbers.end() - 1, rounded), below = above - 1;
  return static_cast<uint8_t>((*above - rounded <= rounded - *below ? above : below) - numbers.begin());
}

FormatRun Nf4Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
  FormatRun run;
  const Nf4Row reader(row, columns);
  reader.ForBlocks(begin, std::min(end, begin + kNf4Block - reader.InBlock(begin)),
                   [&](float absmax, int64_t first, int64_t last) {
                     run = {.elements = reader.indices() + first / 2, .count = last - first, .scale = absmax};
                   });
  return run;
}

void Nf4NumbersOf(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
  const Nf4Row reader(row, columns);
  reader.ForBlocks(begin, end, [&](float absmax, int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) *out++ = ToBF16(kNf4Numbers[reader.Index(c)] * absmax);
  });
}

// Infinite or NaN if one of them is. Magnitudes are ordered as the integers that their bits are.
float AbsmaxOf(std::span<const float> x) {
  uint32_t largest = 0;
  for (const float v : x) largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7FFF'FFFFu);
  return std::bit_cast<float>(largest);
}

// Calls fn(block, elements) for each run of `x`, whose first one is element `at` of a tensor, in one block.
template <class Fn>
void ForBlocksOf(std::span<const float> x, int64_t at, const Fn& fn) {
  while (!x.empty()) {
    const auto n = std::min(x.size(), static_cast<size_t>(kNf4Block - at % kNf4Block));
    fn(static_cast<size_t>(at / kNf4Block), x.first(n));
    x = x.subspan(n);
    at += static_cast<int64_t>(n);
  }
}

class Nf4Maker : public RowMaker {
 public:
  Nf4Maker(int64_t rows, int64_t columns)
      : columns_(columns),
        whole_blocks_(static_cast<size_t>(rows * columns / kNf4Block)),
        absmax_(static_cast<size_t>((rows * columns + kNf4Block - 1) / kNf4Block)) {}

  bool Look(int64_t row, std::span<const float> x) override {
    bool finite = true;
    ForBlocksOf(x, row * columns_, [&](size_t block, std::span<const float> of_block) {
      const float absmax = AbsmaxOf(of_block);
      finite = finite && std::isfinite(absmax);
      absmax_[block] = std::max(absmax_[block], absmax);
    });
    return finite;
  }

  bool Write(int64_t row, std::span<const float> x, int64_t begin, int64_t columns, std::byte* out) override {
    if (absmaxes_.indices.empty()) absmaxes_ = QuantiseAbsmaxes(absmax_);
    const int64_t at = row * columns_ + begin;
    indices_.resize(static_cast<size_t>(columns));
    uint8_t* to = indices_.data();
    ForBlocksOf(x, at, [&](size_t block, std::span<const float> of_block) {
      Nf4Indices(of_block, absmax_[block], block < whole_blocks_, to);
      to += of_block.size();
    });
    WriteNf4Row(indices_, at, absmaxes_, out);
    return true;
  }

 private:
  int64_t columns_;
  size_t whole_blocks_;
  std::vector<float> absmax_;  // of each block
  Nf4Absmaxes absmaxes_;       // the same, quantised, after the last Look
  std::vector<uint8_t> indices_;
};

// As bitsandbytes stores it; format/nf4_tensor.h reads it.
constexpr FormatKey kNf4Keys[] = {
    {"load_in_4bit", "true"}, {"bnb_4bit_quant_type", "\"nf4\""}, {"bnb_4bit_use_double_quant", "true"}};
constexpr StoredFormat kNf4Stored = {.method = "bitsandbytes", .keys = kNf4Keys, .leaves_experts = true};

}  // namespace

extern const FormatRule kNf4Format = {.name = "nf4",
                                      .title = "NF4",
                                      .row_bytes = Nf4RowBytes,
                                      .elements_in_byte = 2,
                                      .run = Nf4Run,
                                      .numbers = Nf4NumbersOf,
                                      .maker = [](int64_t rows, int64_t columns) -> std::unique_ptr<RowMaker> {
                                        return std::make_unique<Nf4Maker>(rows, columns);
                                      },
                                      .looks = true,
                                      .makes_parts = true,
                                      .stored = &kNf4Stored,
                                      .on_gpus = true};

Nf4Absmaxes QuantiseAbsmaxes(std::span<const float> absmax) {
  Nf4Absmaxes q;
  double sum = 0;
  for (const float x : absmax) sum += static_cast<double>(x);
  q.mean = absmax.empty() ? 0 : static_cast<float>(sum / static_cast<double>(absmax.size()));
  for (size_t begin = 0; begin < absmax.size(); begin += kNf4Group) {
    const auto group = absmax.subspan(begin, std::min<size_t>(kNf4Group, absmax.size() - begin));
    float scale = 0;
    for (const float x : group) scale = std::max(scale, std::fabs(x - q.mean));
    q.scales.push_back(scale);
    const float inverse = 1 / scale;  // infinite of 0 and of the smallest, which then count as 0
    for (const float x : group) {
      q.indices.push_back(std::isinf(inverse) ? 0 : AbsmaxIndex(std::clamp((x - q.mean) * inverse, -1.0f, 1.0f)));
    }
  }
  return q;
}

void Nf4Indices(std::span<const float> x, float absmax, bool whole, uint8_t* indices) {
  constexpr float kLeast = 1e-38f;
  TEMPER_CHECK(std::ssize(x) <= kNf4Block) << x.size();
  const float divisor = std::max(absmax, kLeast), factor = 1 / divisor;
  float part[kNf4Block] = {};
  for (size_t i = 0; i < x.size(); ++i) part[i] = whole ? x[i] * factor : x[i] / divisor;
  int32_t below[kNf4Block] = {};  // how many borders
  for (int i = 0; i < 15; ++i) {
    const float border = (kNf4Numbers[i] + kNf4Numbers[i + 1]) / 2;
    for (int64_t e = 0; e < kNf4Block; ++e) below[e] += part[e] > border;
  }
  for (size_t i = 0; i < x.size(); ++i) indices[i] = static_cast<uint8_t>(below[i]);
}

void WriteNf4Row(std::span<const uint8_t> indices, int64_t at, const Nf4Absmaxes& absmaxes, std::byte* out) {
  const auto columns = static_cast<int64_t>(indices.size());
  std::byte* end = out + Nf4RowBytes(columns);
  std::memset(out, 0, static_cast<size_t>(end - out));
  for (int64_t i = 0; i < columns; ++i) {
    out[i / 2] |= static_cast<std::byte>(indices[static_cast<size_t>(i)] << (i % 2 == 0 ? 4 : 0));
  }
  if (columns == 0) return;
  const int64_t first = at / kNf4Block, last = (at + columns - 1) / kNf4Block;
  std::memcpy(out + (columns + 1) / 2, absmaxes.indices.data() + first, static_cast<size_t>(last - first + 1));
  const auto put = [&end](float x) { std::memcpy(end -= sizeof x, &x, sizeof x); };
  put(absmaxes.mean);
  for (int64_t g = first / kNf4Group; g <= last / kNf4Group; ++g) put(absmaxes.scales[static_cast<size_t>(g)]);
  std::byte* const places = out + Nf4RowBytes(columns) - Nf4EndBytes(columns);
  places[0] = static_cast<std::byte>(at % kNf4Block);
  places[1] = static_cast<std::byte>(first % kNf4Group);
}

}  // namespace temper
