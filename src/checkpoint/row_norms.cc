#include "checkpoint/row_norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "checkpoint/merge.h"
#include "format/conversion.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// Elements of a weight that are in memory at a time: some 32 MB in f32.
constexpr int64_t kElementsAtOnce = 8 << 20;

// Rows of weights and adapters, in host memory of their own, as the run computes with them.
class FileRows {
 public:
  FileRows(const ModelWeights& files, std::span<const StoredWeight> weights, const AdapterReader* adapter,
           const BufferLookup& buffer)
      : files_(files), adapter_(adapter), buffer_(buffer) {
    for (const StoredWeight& w : weights) weights_[w.name] = &w;
  }

  // Calls take(row, rows, x) for rows [first, first + count) of a weight, some at a time; `row` counts from `first`.
  template <class Take>
  Status ForRows(const std::string& name, int64_t first, int64_t count, const Take& take) {
    const StoredWeight& stored = *weights_.at(name);
    const ElementFormat format = FormatOf(name);
    const auto load = [&](const BufferLookup& to) { return LoadWeights(files_, {&stored, 1}, to); };
    const int64_t some = std::max<int64_t>(kElementsAtOnce / std::max<int64_t>(stored.shape[1], 1), 1);
    // Quantising may read all of a tensor, however few of its rows it makes (NF4 does).
    const int64_t at_once = format.quantised() ? std::max<int64_t>(count, 1) : some;
    for (int64_t begin = 0; begin < count; begin += at_once) {
      const int64_t read = std::min(at_once, count - begin);
      TEMPER_RETURN_IF_ERROR(Read(name, format, stored.shape, first + begin, read, load));
      for (int64_t row = 0; row < read; row += some) {
        const int64_t rows = std::min(some, read - row);
        ToFloats(format, row, rows, stored.shape[1], &floats_);
        take(begin + row, rows, floats_.data());
      }
    }
    return OkStatus();
  }
  // Rows of one of the adapter's matrices.
  Status Adapter(const std::string& name, const Shape& shape, int64_t first, int64_t rows, std::vector<float>* out) {
    const ElementFormat format = FormatOf(name);
    const auto load = [&](const BufferLookup& to) { return adapter_->Load(to); };
    TEMPER_RETURN_IF_ERROR(Read(name, format, shape, first, rows, load));
    ToFloats(format, 0, rows, shape[1], out);
    return OkStatus();
  }

 private:
  // f32 where the run has no memory for it: it then reads the files themselves.
  ElementFormat FormatOf(const std::string& name) const {
    const DevicePart part = buffer_(name);
    return part.exists() ? part.part.view.type.dtype : ElementFormat(DType::kF32);
  }

  template <class Load>
  Status Read(const std::string& name, ElementFormat format, const Shape& shape, int64_t first, int64_t rows,
              const Load& load) {
    const TensorType type{format, {rows, shape[1]}};
    stored_.resize(static_cast<size_t>(type.bytes().v));
    const PartView part(View{stored_.data(), type}, shape, Shape{first, 0});
    return load([&](const std::string& wanted) { return wanted == name ? DevicePart(part) : DevicePart(); });
  }

  // Of what was read: rows from `first` on.
  void ToFloats(ElementFormat format, int64_t first, int64_t rows, int64_t columns, std::vector<float>* out) const {
    out->resize(static_cast<size_t>(rows * columns));
    const std::byte* from = stored_.data() + first * format.RowBytes(columns);
    if (!format.quantised()) {
      return Convert(format, from, DType::kF32, reinterpret_cast<std::byte*>(out->data()), rows * columns);
    }
    std::vector<bf16> numbers(static_cast<size_t>(columns));
    for (float* to = out->data(); rows > 0; --rows, to += columns, from += format.RowBytes(columns)) {
      RuleOf(format).numbers(from, columns, 0, columns, numbers.data());
      std::transform(numbers.begin(), numbers.end(), to, [](bf16 x) { return ToFloat(x); });
    }
  }

  const ModelWeights& files_;
  const AdapterReader* const adapter_;
  const BufferLookup& buffer_;
  std::map<std::string, const StoredWeight*> weights_;
  std::vector<std::byte> stored_;
  std::vector<float> floats_;
};

// Squares of rows [first, first + squares.size()) of a part.
Status SquaresOf(const LoraModule& m, const LoraModule::Part& part, NormsOf of, int64_t first, FileRows& files,
                 std::span<float> squares) {
  std::vector<float> a, b;
  if (of == NormsOf::kSum) {
    TEMPER_RETURN_IF_ERROR(files.Adapter(LoraAName(m.path), {m.r, m.in}, 0, m.r, &a));
    TEMPER_RETURN_IF_ERROR(files.Adapter(part.b, {part.rows, m.r}, first, std::ssize(squares), &b));
  }
  return files.ForRows(part.weight, first, std::ssize(squares), [&](int64_t row, int64_t rows, float* w) {
    if (of == NormsOf::kSum) {
      MergeRows(w, rows, m.in, b.data() + row * m.r, a.data(), m.r, static_cast<float>(m.scale));
    }
    SquaresOfRows(w, rows, m.in, squares.data() + row);
  });
}

}  // namespace

void SquaresOfRows(const float* x, int64_t rows, int64_t columns, float* sums) {
  // Sixteen sums, which vectors hold; each of few enough terms to be as exact as f32 is.
  constexpr int64_t kLanes = 16;
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    double lanes[kLanes] = {};
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] += static_cast<double>(x[c + i]) * static_cast<double>(x[c + i]);
    }
    double sum = 0;
    for (; c < columns; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
    for (const double lane : lanes) sum += lane;
    sums[r] = static_cast<float>(sum);
  }
}

Status LoadRowNorms(const ModelWeights& files, std::span<const StoredWeight> weights,
                    std::span<const LoraModule> modules, NormsOf of, const AdapterReader* adapter, bool magnitudes,
                    const BufferLookup& buffer) {
  if (std::none_of(modules.begin(), modules.end(), [](const LoraModule& m) { return m.has_magnitudes; })) {
    return OkStatus();
  }
  TEMPER_CHECK(of == NormsOf::kWeight || (adapter != nullptr && !magnitudes));
  FileRows rows(files, weights, adapter, buffer);
  HostWindow window;
  std::vector<float> squares;
  for (const LoraModule& m : modules) {
    if (!m.has_magnitudes) continue;
    for (const LoraModule::Part& part : m.parts) {
      const DevicePart to = buffer(part.squares);
      const DevicePart magnitude = magnitudes ? buffer(part.magnitude) : DevicePart();
      if (!to.exists()) continue;  // of another stage
      // Both are of the same rows, unless a user's rule splits one alone.
      int64_t begin = to.part.begin[0], end = begin + to.part.view.type.shape[0];
      if (magnitude.exists()) {
        begin = std::min(begin, magnitude.part.begin[0]);
        end = std::max(end, magnitude.part.begin[0] + magnitude.part.view.type.shape[0]);
      }
      squares.resize(static_cast<size_t>(end - begin));
      TEMPER_RETURN_IF_ERROR(SquaresOf(m, part, of, begin, rows, squares));
      const auto fill = [&](const DevicePart& all, auto&& number) {
        if (!all.exists()) return OkStatus();
        return window.Fill(all, [&](const PartView& piece) {
          const std::span<float> x = piece.view.as<float>();
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] = number(squares[static_cast<size_t>(piece.begin[0] - begin) + i]);
          }
          return OkStatus();
        });
      };
      TEMPER_RETURN_IF_ERROR(fill(to, [](float square) { return square; }));
      TEMPER_RETURN_IF_ERROR(fill(magnitude, [](float square) { return std::sqrt(square); }));
    }
  }
  return OkStatus();
}

}  // namespace temper
