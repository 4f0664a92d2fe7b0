#include "checkpoint/row_norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "checkpoint/merge.h"
#include "format/conversion.h"

namespace temper {
namespace {

// Elements of a weight that are in memory at a time: some 32 MB in f32.
constexpr int64_t kElementsAtOnce = 8 << 20;

// Of the files, in host memory of their own.
class FileRows {
 public:
  FileRows(const ModelWeights& files, std::span<const StoredWeight> weights, const AdapterReader* adapter,
            const BufferLookup& buffer)
      : files_(files), adapter_(adapter), buffer_(buffer) {
    for (const StoredWeight& w : weights) weights_[w.name] = &w;
  }

  // Rows [first, first + rows) of a weight, as the run computes with them, in f32.
  Status Weight(const std::string& name, int64_t first, int64_t rows, std::vector<float>* out) {
    const StoredWeight& stored = *weights_.at(name);
    const auto read = [&](const BufferLookup& to) { return LoadWeights(files_, {&stored, 1}, to); };
    return Read(name, stored.shape, first, rows, read, out);
  }
  // The same of a matrix of the adapter.
  Status Adapter(const std::string& name, const Shape& shape, int64_t first, int64_t rows, std::vector<float>* out) {
    return Read(
        name, shape, first, rows, [&](const BufferLookup& to) { return adapter_->Load(to); }, out);
  }
  int64_t ColumnsOf(const std::string& weight) const { return weights_.at(weight)->shape[1]; }
  // Quantising NF4 takes a whole tensor.
  int64_t RowsAtOnce(const std::string& weight) const {
    const StoredWeight& stored = *weights_.at(weight);
    if (FormatOf(weight).quantised()) return stored.shape[0];
    return std::max<int64_t>(kElementsAtOnce / std::max<int64_t>(stored.shape[1], 1), 1);
  }

 private:
  // f32 where the run has no memory for it: it then reads the files themselves.
  ElementFormat FormatOf(const std::string& name) const {
    const DevicePart part = buffer_(name);
    return part.exists() ? part.part.view.type.dtype : ElementFormat(DType::kF32);
  }

  template <class ReadInto>
  Status Read(const std::string& name, const Shape& shape, int64_t first, int64_t rows, const ReadInto& read,
              std::vector<float>* out) {
    const int64_t columns = shape[1];
    TensorType type{FormatOf(name), {rows, columns}};
    stored_.resize(static_cast<size_t>(type.bytes().v));
    PartView part(View{stored_.data(), type}, shape, Shape{first, 0});
    const Status status =
        read([&](const std::string& wanted) { return wanted == name ? DevicePart(part) : DevicePart(); });
    TEMPER_RETURN_IF_ERROR(status);
    out->resize(static_cast<size_t>(rows * columns));
    if (!type.dtype.quantised()) {
      Convert(type.dtype, stored_.data(), DType::kF32, reinterpret_cast<std::byte*>(out->data()), rows * columns);
      return OkStatus();
    }
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* const row = stored_.data() + r * type.dtype.RowBytes(columns);
      for (int64_t c = 0; c < columns; ++c) {
        (*out)[static_cast<size_t>(r * columns + c)] = ToFloat(type.dtype.Number(row, columns, c));
      }
    }
    return OkStatus();
  }

  const ModelWeights& files_;
  const AdapterReader* const adapter_;
  const BufferLookup& buffer_;
  std::map<std::string, const StoredWeight*> weights_;
  std::vector<std::byte> stored_;
};

// Squares of rows [first, first + squares.size()) of a part.
Status SquaresOf(const LoraModule& m, const LoraModule::Part& part, RowsOf of, int64_t first, FileRows& reader,
                 std::span<float> squares) {
  const int64_t columns = reader.ColumnsOf(part.weight), at_once = reader.RowsAtOnce(part.weight);
  std::vector<float> a, b, w;
  if (of == RowsOf::kSum) {
    TEMPER_RETURN_IF_ERROR(reader.Adapter(LoraAName(m.path), {m.r, m.in}, 0, m.r, &a));
    TEMPER_RETURN_IF_ERROR(reader.Adapter(part.b, {part.rows, m.r}, first, std::ssize(squares), &b));
  }
  for (int64_t at = 0; at < std::ssize(squares); at += at_once) {
    const int64_t rows = std::min(at_once, std::ssize(squares) - at);
    TEMPER_RETURN_IF_ERROR(reader.Weight(part.weight, first + at, rows, &w));
    if (of == RowsOf::kSum) {
      MergeRows(w.data(), rows, columns, b.data() + at * m.r, a.data(), m.r, static_cast<float>(m.scale));
    }
    SquaresOfRows(w.data(), rows, columns, squares.data() + at);
  }
  return OkStatus();
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
                    std::span<const LoraModule> modules, RowsOf of, const AdapterReader* adapter, bool magnitudes,
                    const BufferLookup& buffer) {
  TEMPER_CHECK(of == RowsOf::kWeight || (adapter != nullptr && !magnitudes));
  FileRows reader(files, weights, adapter, buffer);
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
      TEMPER_RETURN_IF_ERROR(SquaresOf(m, part, of, begin, reader, squares));
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
