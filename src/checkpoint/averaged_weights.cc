#include "checkpoint/averaged_weights.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "format/conversion.h"
#include "graph/update_rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

constexpr int64_t kExchangedAtOnce = 1 << 18;  // elements

// Elements [begin, begin + count) in row-major order, as a vector.
DevicePart Piece(const DevicePart& of, int64_t begin, int64_t count) {
  const DType dtype = of.part.view.type.dtype.dtype();
  return {PartView(View{of.part.view.data + begin * SizeOf(dtype), {dtype, {count}}}), *of.stream};
}

class Exchanger {
 public:
  // `rounded`: the copy that is computed with, if the weight has one.
  Status Exchange(const DevicePart& weight, const DevicePart& average, const DevicePart& rounded) {
    const int64_t elements = weight.part.view.type.shape.elements();
    for (int64_t begin = 0; begin < elements; begin += kExchangedAtOnce) {
      const int64_t count = std::min(kExchangedAtOnce, elements - begin);
      TEMPER_RETURN_IF_ERROR(Read(Piece(weight, begin, count), &weights_));
      TEMPER_RETURN_IF_ERROR(Read(Piece(average, begin, count), &averages_));
      TEMPER_RETURN_IF_ERROR(Write(averages_, Piece(weight, begin, count)));
      TEMPER_RETURN_IF_ERROR(Write(weights_, Piece(average, begin, count)));
      if (!rounded.exists()) continue;
      const DevicePart piece = Piece(rounded, begin, count);
      const DType dtype = piece.part.view.type.dtype.dtype();
      copies_.resize(static_cast<size_t>(count * SizeOf(dtype)));
      Convert(DType::kF32, averages_.data(), dtype, copies_.data(), count);
      TEMPER_RETURN_IF_ERROR(Write(copies_, piece));
    }
    return OkStatus();
  }

 private:
  Status Read(const DevicePart& from, std::vector<std::byte>* bytes) {
    bytes->clear();
    return window_.Read(from, [&](std::span<const std::byte> piece) {
      bytes->insert(bytes->end(), piece.begin(), piece.end());
      return OkStatus();
    });
  }
  Status Write(std::span<const std::byte> bytes, const DevicePart& to) {
    TEMPER_RETURN_IF_ERROR(window_.Put(to, 0, bytes));
    return window_.Flush();
  }

  HostWindow window_;
  std::vector<std::byte> weights_, averages_, copies_;
};

}  // namespace

Status ExchangeAverages(const Program& program, const BufferLookup& buffer) {
  std::map<std::string_view, const Buffer*> buffers;
  for (const Buffer& b : program.buffers) buffers[b.name] = &b;
  const auto find = [&](const std::string& name) {
    const auto it = buffers.find(name);
    return it == buffers.end() ? nullptr : it->second;
  };
  Exchanger exchanger;
  for (const Buffer& own : program.buffers) {
    if (!own.trainable) continue;
    const Buffer *const average = find(kAverageState.NameOf(own.name)), *const master = find(MasterName(own.name));
    TEMPER_CHECK(average != nullptr) << own.name << " has no average";
    const Buffer& weight = master == nullptr ? own : *master;
    TEMPER_CHECK(weight.type == average->type) << own.name << " and its average are split differently";
    TEMPER_RETURN_IF_ERROR(exchanger.Exchange(buffer(weight.name), buffer(average->name),
                                              master == nullptr ? DevicePart() : buffer(own.name)));
  }
  return OkStatus();
}

}  // namespace temper
