#include "checkpoint/training_state.h"

#include <fmt/core.h>

#include <deque>
#include <map>
#include <set>
#include <string_view>

#include "checkpoint/transposed_windows.h"
#include "format/conversion.h"
#include "format/lora_config.h"
#include "format/trained_copy.h"
#include "format/transpose.h"
#include "graph/update_rule.h"
#include "program/buffer_names.h"
#include "tensor/tiling.h"

namespace temper {
namespace {

// A value that is saved, and where its numbers and the optimizer's states live: a trainable one, or a number of the
// model's files that a full run leaves as it is.
struct Trained {
  const Buffer* own = nullptr;
  const Buffer* master = nullptr;  // null where `own` is f32 itself, or is rounded stochastically and has none
  struct State {
    const Buffer* buffer;
    const UpdateState* kind;
  };
  std::vector<State> states;
  const Buffer& numbers() const { return master ? *master : *own; }
};

// Calls body(state) for every state that a value may have.
template <class Body>
void ForStates(const Body& body) {
  for (const UpdateState* state : UpdateStates()) body(*state);
}

std::vector<Trained> TrainedValues(const Program& program, std::span<const StoredWeight> weights) {
  std::set<std::string_view> stored;
  for (const StoredWeight& w : weights) stored.insert(w.name);
  std::map<std::string_view, const Buffer*> buffers;
  for (const Buffer& b : program.buffers) buffers[b.name] = &b;
  const auto find = [&](const std::string& name) {
    const auto it = buffers.find(name);
    return it == buffers.end() ? nullptr : it->second;
  };
  std::vector<Trained> trained;
  for (const Buffer& b : program.buffers) {
    if (!b.trainable && !(b.role == Role::kWeight && stored.contains(b.name))) continue;
    Trained t{.own = &b, .master = find(MasterName(b.name))};
    ForStates([&](const UpdateState& kind) {
      if (const Buffer* const state = find(kind.NameOf(b.name))) t.states.push_back({state, &kind});
    });
    const DType dtype = t.numbers().type.dtype;
    TEMPER_CHECK(dtype == DType::kF32 || (t.master == nullptr && dtype == DType::kBF16))
        << t.numbers().name << " is " << t.numbers().type.ToString();
    trained.push_back(std::move(t));
  }
  return trained;
}

// In which tensors of the model's files values lie.
class Sources {
 public:
  explicit Sources(std::span<const StoredWeight> weights) {
    for (const StoredWeight& w : weights) by_name_[w.name] = &w.source;
  }

  // Of a part of the value of that name.
  std::vector<WeightSource::FilePart> FileParts(const std::string& value, const PartView& part) {
    auto it = by_name_.find(value);
    if (it == by_name_.end()) {
      const WeightSource& whole = own_.emplace_back(FileTensor{.name = value, .shape = part.global});
      it = by_name_.emplace(value, &whole).first;
    }
    return it->second->FileParts(part);
  }
  std::vector<std::string> TensorsOf(const std::string& value) const {
    const auto it = by_name_.find(value);
    if (it == by_name_.end()) return {value};
    std::vector<std::string> names;
    for (const FileTensor& tensor : it->second->tensors()) {
      names.push_back(tensor.name);
      if (!value.starts_with(kAdapterPrefix)) continue;
      names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
    }
    return names;
  }

 private:
  std::map<std::string, const WeightSource*> by_name_;
  std::deque<WeightSource> own_;  // of values that are tensors of their own names
};

// What is kept of a trained value: the tensor "<prefix><X>" for each tensor X of the files that the value lies in. A
// state without a number for each element, or in blocks, is of the value and not of the files' tensors: it is one
// tensor
// "<prefix><value>".
struct Kept {
  const Trained* trained = nullptr;
  const Buffer* buffer = nullptr;
  std::string prefix;  // "" of the value itself, "adam_m:" of a state
  bool of_value = false;
};
std::vector<Kept> KeptOf(const std::vector<Trained>& trained) {
  std::vector<Kept> kept;
  for (const Trained& t : trained) {
    kept.push_back({&t, &t.numbers(), ""});
    for (const auto& [state, kind] : t.states) {
      kept.push_back({&t, state, kind->NameOf(""), kind->of != UpdateState::Of::kElement});
    }
  }
  return kept;
}

PartView PartOf(const Buffer& b, std::byte* data) {
  const View view{data, b.type};
  return b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view);
}

// Calls body(tensor, part, transposed) for each tensor of which it keeps a part.
template <class Body>
Status ForParts(const Kept& kept, std::byte* data, Sources* sources, const Body& body) {
  const PartView own = PartOf(*kept.buffer, data);
  const std::string& value = kept.trained->own->name;
  if (kept.of_value) return body(FileTensor{.name = value, .shape = own.global}, own, false);
  for (const auto& [tensor, part, transposed] : sources->FileParts(value, own)) {
    TEMPER_RETURN_IF_ERROR(body(*tensor, part, transposed));
  }
  return OkStatus();
}

Status CheckNames(const CheckpointReader& checkpoint, const std::vector<CheckpointTensor>& expected,
                  const std::vector<std::string>& trained, const Sources& sources) {
  constexpr char kRemedy[] = "the checkpoint is of another model or configuration; use the ones that it was made with";
  std::set<std::string_view> names;
  for (const CheckpointTensor& t : expected) {
    names.insert(t.name);
    const Manifest::Tensor* stored = checkpoint.manifest().Find(t.name);
    if (!stored) return NotFound(fmt::format("{} lacks tensor {}: {}", checkpoint.path(), t.name, kRemedy));
    if (stored->type != t.whole()) {
      return InvalidArgument(fmt::format("{}: tensor {} is {} but training needs {}: {}", checkpoint.path(), t.name,
                                         stored->type.ToString(), t.whole().ToString(), kRemedy));
    }
  }
  std::set<std::string> elsewhere;
  for (const std::string& value : trained) {
    ForStates([&](const UpdateState& state) {
      if (state.of != UpdateState::Of::kElement) elsewhere.insert(state.NameOf(value));
    });
    for (const std::string& name : sources.TensorsOf(value)) {
      elsewhere.insert(name);
      ForStates([&](const UpdateState& state) { elsewhere.insert(state.NameOf(name)); });
    }
  }
  for (const Manifest::Tensor& stored : checkpoint.manifest().tensors) {
    if (names.contains(stored.name) || elsewhere.contains(stored.name)) continue;
    return InvalidArgument(
        fmt::format("{} has tensor {}, which training does not: {}", checkpoint.path(), stored.name, kRemedy));
  }
  return OkStatus();
}

// Gives `part`, of the transpose of what is stored under `name`, to `put`.
Status LoadTransposed(const CheckpointReader& checkpoint, const std::string& name, const PartView& part,
                      const PutBytes& put) {
  const Shape& shape = part.view.type.shape;
  const DType dtype = part.view.type.dtype;
  TransposedPut turned(shape, SizeOf(dtype), put);
  TEMPER_RETURN_IF_ERROR(
      checkpoint.LoadTensor(name, {dtype, Transposed(part.global)}, {Transposed(part.begin), Transposed(shape)},
                            [&](int64_t at, std::span<const std::byte> bytes) { return turned.Put(at, bytes); }));
  return turned.Flush();
}

}  // namespace

std::vector<CheckpointTensor> TrainingState(const Program& program, const BufferLookup& buffer,
                                            std::span<const StoredWeight> weights, int rank, int ranks) {
  const std::string state_file = fmt::format("state-{:05}-of-{:05}.safetensors", rank, ranks);
  const std::string weights_file = ranks == 1 ? kModelWeightsFile : state_file;
  const std::vector<Trained> trained = TrainedValues(program, weights);
  Sources sources(weights);
  std::vector<CheckpointTensor> parts;
  for (const Kept& kept : KeptOf(trained)) {
    const Buffer& b = *kept.buffer;
    const DevicePart memory = buffer(b.name);
    const bool is_state = !kept.prefix.empty();
    // A module that is trained in full beside adapters is saved with them.
    const bool copied = kept.trained->own->role == Role::kWeight && kept.trained->own->name.starts_with(kAdapterPrefix);
    const bool adapter = copied || kept.trained->own->role == Role::kAdapter;
    const auto add = [&](const FileTensor& tensor, const PartView& part, bool transposed) {
      const std::string name = kept.prefix + tensor.name;
      parts.push_back({.name = name,
                       .part = part,
                       .file = is_state  ? state_file
                               : adapter ? kAdapterWeightsFile
                                         : weights_file,
                       .stored_as = name,
                       .joined = !is_state && adapter,
                       .transposed = transposed,
                       .kind = copied ? std::string(ToString(CheckpointKind::kFull)) : ""});
      if (b.tier() != Tier::kDevice) parts.back().stream = memory.stream;
      if (is_state || !adapter) return OkStatus();
      for (const std::string& twin : tensor.aliases) {
        CheckpointTensor again = parts.back();
        again.name = again.stored_as = twin;
        parts.push_back(std::move(again));
      }
      return OkStatus();
    };
    TEMPER_CHECK(ForParts(kept, memory.part.view.data, &sources, add).ok());
  }
  return ranks == 1 ? SlicesOf(std::move(parts)) : parts;
}

namespace {

// Tells the slices of a tensor apart: their first row, and where they begin in other dims, if not at 0.
std::string PlaceOf(const Shape& begin) {
  std::string place = fmt::format("{}", begin[0]);
  int last = begin.rank() - 1;
  while (last > 0 && begin[last] == 0) --last;
  for (int d = 1; d <= last; ++d) place += fmt::format(",{}", begin[d]);
  return place;
}

PartView RowOf(const PartView& part, int64_t row) {
  PartView one = part;
  one.view.type.shape.set_dim(0, 1);
  one.begin.set_dim(0, part.begin[0] + row);
  if (one.view.data != nullptr) one.view.data += row * one.view.type.bytes().v;
  return one;
}

}  // namespace

std::vector<CheckpointTensor> SlicesOf(std::vector<CheckpointTensor> parts) {
  std::map<std::string, std::vector<CheckpointTensor>> by_name;
  std::vector<std::string> order;
  for (CheckpointTensor& t : parts) {
    std::vector<CheckpointTensor>& same = by_name[t.name];
    if (same.empty()) order.push_back(t.name);
    same.push_back(std::move(t));
  }
  std::vector<CheckpointTensor> joined;
  for (const std::string& name : order) {
    std::vector<CheckpointTensor>& same = by_name[name];
    std::vector<Box> boxes;  // of the transpose, where that lies in memory
    boxes.reserve(same.size());
    for (const CheckpointTensor& t : same) boxes.push_back({t.part.begin, t.part.view.type.shape});
    const std::vector<JoinedBoxes> groups = JoinBoxes(boxes);
    for (const JoinedBoxes& group : groups) {
      const PartView first = same[group.boxes[0]].part;
      CheckpointTensor& slice = joined.emplace_back(std::move(same[group.boxes[0]]));
      if (groups.size() > 1) slice.stored_as += "@" + PlaceOf(first.begin);
      if (group.alternate) {
        slice.together = group.whole.shape;
        slice.part = RowOf(first, 0);
      }
      slice.more.reserve(group.boxes.size() * static_cast<size_t>(group.alternate ? group.whole.shape[0] : 1));
      for (int64_t row = 0; row < (group.alternate ? group.whole.shape[0] : 1); ++row) {
        for (const size_t i : group.boxes) {
          const bool is_first = i == group.boxes[0];
          if (is_first && row == 0) continue;  // the slice's own
          const PartView& part = is_first ? first : same[i].part;
          slice.more.push_back({group.alternate ? RowOf(part, row) : part, is_first ? slice.stream : same[i].stream});
        }
      }
    }
  }
  return joined;
}

bool IsValueName(const std::string& name) {
  const std::vector<const UpdateState*> states = UpdateStates();
  return std::none_of(states.begin(), states.end(),
                      [&](const UpdateState* state) { return name.starts_with(state->NameOf("")); });
}

Result<std::vector<CheckpointTensor>> OwnParts(std::vector<CheckpointTensor> parts, Communicator& communicator) {
  // No rank writes an empty part, unless the whole is empty.
  std::erase_if(parts, [](const CheckpointTensor& t) {
    return t.slice().shape.elements() == 0 && t.part.global.elements() != 0;
  });
  const auto key = [](const CheckpointTensor& t) {
    return fmt::format("{} {} {}\n", t.name, t.begin().ToString(), t.slice().shape.ToString());
  };
  std::string own;
  for (const CheckpointTensor& t : parts) own += key(t);
  std::set<std::string, std::less<>> taken;  // by ranks before this one
  for (int rank = 0; rank + 1 < communicator.size(); ++rank) {
    std::string text = rank == communicator.rank() ? own : "";
    auto length = static_cast<int64_t>(text.size());
    TEMPER_RETURN_IF_ERROR(communicator.Broadcast(std::as_writable_bytes(std::span(&length, 1)), rank));
    text.resize(static_cast<size_t>(length));
    TEMPER_RETURN_IF_ERROR(communicator.Broadcast(std::as_writable_bytes(std::span(text)), rank));
    if (rank >= communicator.rank()) continue;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin) + 1;
      taken.insert(text.substr(begin, end - begin));
      begin = end;
    }
  }
  std::erase_if(parts, [&](const CheckpointTensor& t) { return taken.contains(key(t)); });
  return SlicesOf(std::move(parts));
}

Status RestoreTrainingState(const CheckpointReader& checkpoint, const Program& program, const BufferLookup& buffer,
                            std::span<const StoredWeight> weights, const std::function<void(Bytes, Bytes)>& progress,
                            const std::vector<std::string>& trained) {
  Sources sources(weights);
  TEMPER_RETURN_IF_ERROR(CheckNames(checkpoint, TrainingState(program, buffer, weights), trained, sources));
  const std::vector<Trained> values = TrainedValues(program, weights);
  const std::vector<Kept> all = KeptOf(values);
  Bytes done{}, total{};
  for (const Kept& kept : all) total += kept.buffer->type.bytes();
  HostWindow window, rounded_window;
  std::vector<std::byte> numbers;
  for (const Kept& kept : all) {
    const Buffer& b = *kept.buffer;
    const Trained& t = *kept.trained;
    // Of the value itself, where it is computed with in another type, also the copy that is: the master rounded.
    const bool rounds = kept.prefix.empty() && t.master != nullptr;
    const DevicePart to = buffer(b.name), rounded = rounds ? buffer(t.own->name) : DevicePart();
    const DType type = rounded.part.view.type.dtype;
    TEMPER_CHECK(!rounds || rounded.part.view.type.shape == b.type.shape)
        << t.own->name << " and its master are split differently";
    const auto load = [&](const FileTensor& tensor, const PartView& part, bool transposed) -> Status {
      const int64_t first = part.view.data - to.part.view.data;  // byte of the buffer
      const auto put = [&](int64_t at, std::span<const std::byte> bytes) -> Status {
        TEMPER_RETURN_IF_ERROR(window.Put(to, first + at, bytes));
        if (!rounds) return OkStatus();
        const int64_t size = SizeOf(DType::kF32), n = std::ssize(bytes) / size;
        numbers.resize(static_cast<size_t>(n * SizeOf(type)));
        Convert(DType::kF32, bytes.data(), type, numbers.data(), n);
        return rounded_window.Put(rounded, (first + at) / size * SizeOf(type), numbers);
      };
      const std::string name = kept.prefix + tensor.name;
      return transposed
                 ? LoadTransposed(checkpoint, name, part, put)
                 : checkpoint.LoadTensor(name, {b.type.dtype, part.global}, {part.begin, part.view.type.shape}, put);
    };
    TEMPER_RETURN_IF_ERROR(ForParts(kept, to.part.view.data, &sources, load));
    TEMPER_RETURN_IF_ERROR(window.Flush());
    TEMPER_RETURN_IF_ERROR(rounded_window.Flush());
    done += b.type.bytes();
    if (progress) progress(done, total);
  }
  return OkStatus();
}

}  // namespace temper
