#include "format/torch/strided_read.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace temper {
namespace {

constexpr int64_t kWindowBytes = 64 << 10;

struct Axis {
  int64_t n = 0, stride = 0, out = 0;  // elements: between neighbours in the file, and in the result
};

// Calls use(file offset, result offset), in elements, for every index of `axes`.
template <class Use>
Status ForEachIndex(std::span<const Axis> axes, const Use& use) {
  std::vector<int64_t> index(axes.size());
  int64_t from = 0, to = 0;
  while (true) {
    TEMPER_RETURN_IF_ERROR(use(from, to));
    size_t a = 0;
    for (; a < axes.size(); ++a) {
      from += axes[a].stride;
      to += axes[a].out;
      if (++index[a] < axes[a].n) break;
      from -= axes[a].n * axes[a].stride;
      to -= axes[a].n * axes[a].out;
      index[a] = 0;
    }
    if (a == axes.size()) return OkStatus();
  }
}

template <class Element>
void Scatter(std::span<const Axis> axes, const std::byte* from, std::byte* to) {
  if (axes.empty()) {
    std::memcpy(to, from, sizeof(Element));
    return;
  }
  const Axis& line = axes.front();  // the elements nearest to each other in the file
  (void)ForEachIndex(axes.subspan(1), [&](int64_t f, int64_t t) {
    for (int64_t i = 0; i < line.n; ++i) {
      std::memcpy(to + (t + i * line.out) * static_cast<int64_t>(sizeof(Element)),
                  from + (f + i * line.stride) * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    }
    return OkStatus();
  });
}

class StridedReader {
 public:
  StridedReader(const RandomAccessFile& file, const StridedPlace& place) : file_(file), place_(place) {}

  // Elements [first, first + n) of the tensor that dims from `level` on make, whose element 0 is `base`.
  Status Read(size_t level, int64_t base, int64_t first, int64_t n, std::byte* out) {
    int64_t inner = 1;
    for (size_t d = level + 1; d < place_.dims.size(); ++d) inner *= place_.dims[d];
    const auto part = [&](int64_t count) -> Status {  // of one index of this level
      TEMPER_RETURN_IF_ERROR(Read(level + 1, base + first / inner * place_.strides[level], first % inner, count, out));
      first += count;
      n -= count;
      out += count * place_.element_size;
      return OkStatus();
    };
    if (n > 0 && first % inner != 0) TEMPER_RETURN_IF_ERROR(part(std::min(n, inner - first % inner)));
    if (const int64_t whole = n / inner; whole > 0) {
      std::vector<Axis> axes = {{whole, place_.strides[level], inner}};
      int64_t out_step = inner;
      for (size_t d = level + 1; d < place_.dims.size(); ++d) {
        out_step /= place_.dims[d];
        axes.push_back({place_.dims[d], place_.strides[d], out_step});
      }
      TEMPER_RETURN_IF_ERROR(Gather(base + first / inner * place_.strides[level], std::move(axes), out));
      first += whole * inner;
      n -= whole * inner;
      out += whole * inner * place_.element_size;
    }
    return n > 0 ? part(n) : OkStatus();
  }

 private:
  Status Gather(int64_t base, std::vector<Axis> axes, std::byte* out) {
    std::erase_if(axes, [](const Axis& a) { return a.n == 1; });
    std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
    // What is read at once: all of the axes whose elements lie nearest to each other, or a stretch of the first.
    const int64_t window = kWindowBytes / place_.element_size;
    int64_t span = 1;
    size_t near = 0;
    for (; near < axes.size(); ++near) {
      const Axis& a = axes[near];
      if (a.stride > window || (a.n - 1) * a.stride > window - span) break;
      span += (a.n - 1) * a.stride;
    }
    if (near == 0 && !axes.empty()) {
      const Axis line = axes.front();
      const int64_t most = std::max<int64_t>((window - 1) / line.stride + 1, 1);  // stride > 0: the line is long
      for (int64_t i = 0; i < line.n; i += most) {
        axes.front().n = std::min(most, line.n - i);
        TEMPER_RETURN_IF_ERROR(GatherNear((axes.front().n - 1) * line.stride + 1, 1, base + i * line.stride, axes,
                                          out + i * line.out * place_.element_size));
      }
      return OkStatus();
    }
    return GatherNear(span, near, base, axes, out);
  }

  Status GatherNear(int64_t span, size_t near, int64_t base, std::span<const Axis> axes, std::byte* out) {
    const int64_t size = place_.element_size;
    window_.resize(static_cast<size_t>(span * size));
    return ForEachIndex(axes.subspan(near), [&](int64_t from, int64_t to) -> Status {
      TEMPER_RETURN_IF_ERROR(file_.ReadAt(place_.begin + (base + from) * size, window_));
      std::byte* const at = out + to * size;
      switch (size) {
        case 1:
          Scatter<uint8_t>(axes.first(near), window_.data(), at);
          break;
        case 2:
          Scatter<uint16_t>(axes.first(near), window_.data(), at);
          break;
        case 4:
          Scatter<uint32_t>(axes.first(near), window_.data(), at);
          break;
        default:
          Scatter<uint64_t>(axes.first(near), window_.data(), at);
      }
      return OkStatus();
    });
  }

  const RandomAccessFile& file_;
  const StridedPlace& place_;
  std::vector<std::byte> window_;
};

}  // namespace

Status ReadStrided(const RandomAccessFile& file, const StridedPlace& place, int64_t first, std::span<std::byte> out) {
  const int64_t n = static_cast<int64_t>(out.size()) / place.element_size;
  if (n == 0) return OkStatus();
  return StridedReader(file, place).Read(0, 0, first, n, out.data());
}

}  // namespace temper
