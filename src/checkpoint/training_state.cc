#include "checkpoint/training_state.h"

#include <fmt/core.h>

#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "checkpoint/adapter_config.h"
#include "format/conversion.h"
#include "graph/update_rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// A trainable value and where its f32 numbers and the optimizer's states live.
struct Trained {
  const Buffer* own = nullptr;
  const Buffer* master = nullptr;  // null where `own` is f32 itself
  std::vector<const Buffer*> states;
  const Buffer& f32() const { return master ? *master : *own; }
};

// Calls body(name) for every state that any optimizer may have of a value.
template <class Body>
void ForStateNames(const std::string& value, const Body& body) {
  for (const UpdateRule* rule : UpdateRules()) {
    for (const UpdateState& state : rule->states) body(state.NameOf(value));
  }
}

std::vector<Trained> TrainedValues(const Program& program) {
  std::map<std::string_view, const Buffer*> buffers;
  for (const Buffer& b : program.buffers) buffers[b.name] = &b;
  const auto find = [&](const std::string& name) {
    const auto it = buffers.find(name);
    return it == buffers.end() ? nullptr : it->second;
  };
  std::vector<Trained> trained;
  for (const Buffer& b : program.buffers) {
    if (!b.trainable) continue;
    Trained t{.own = &b, .master = find(MasterName(b.name))};
    ForStateNames(b.name, [&](const std::string& name) {
      if (const Buffer* const state = find(name)) t.states.push_back(state);
    });
    TEMPER_CHECK(t.f32().type.dtype == DType::kF32) << t.f32().name << " is " << t.f32().type.ToString();
    trained.push_back(std::move(t));
  }
  return trained;
}

Status CheckNames(const CheckpointReader& checkpoint, const std::vector<CheckpointTensor>& expected,
                  const std::vector<std::string>& trained) {
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
  for (const std::string& name : trained) {
    elsewhere.insert(name);
    ForStateNames(name, [&](std::string state) { elsewhere.insert(std::move(state)); });
  }
  for (const Manifest::Tensor& stored : checkpoint.manifest().tensors) {
    if (names.contains(stored.name) || elsewhere.contains(stored.name)) continue;
    return InvalidArgument(
        fmt::format("{} has tensor {}, which training does not: {}", checkpoint.path(), stored.name, kRemedy));
  }
  return OkStatus();
}

}  // namespace

std::vector<CheckpointTensor> TrainingState(const Program& program, const BufferLookup& buffer, int rank, int ranks) {
  const std::string state_file = fmt::format("state-{:05}-of-{:05}.safetensors", rank, ranks);
  const std::string weights_file = ranks == 1 ? kModelWeightsFile : state_file;
  std::vector<CheckpointTensor> tensors;
  const auto add = [&](const std::string& name, const Buffer& b, const std::string& file, bool joined = false) {
    const DevicePart part = buffer(b.name);
    const View view{part.part.view.data, b.type};
    tensors.push_back({name, b.shard ? PartView(view, b.shard->global, b.shard->begin) : view, file, name, joined});
    if (b.tier() != Tier::kDevice) tensors.back().stream = part.stream;
  };
  for (const Trained& t : TrainedValues(program)) {
    if (t.own->role == Role::kAdapter) {
      add(t.own->name, t.f32(), kAdapterWeightsFile, /*joined=*/true);
    } else {
      add(t.own->name, t.f32(), weights_file);
    }
    for (const Buffer* state : t.states) add(state->name, *state, state_file);
  }
  return tensors;
}

bool IsValueName(const std::string& name) {
  for (const UpdateRule* rule : UpdateRules()) {
    for (const UpdateState& state : rule->states) {
      if (name.starts_with(state.NameOf(""))) return false;
    }
  }
  return true;
}

Result<std::vector<CheckpointTensor>> OwnParts(std::vector<CheckpointTensor> tensors, Communicator& communicator) {
  // An empty part is nobody's to write, unless the whole is empty.
  std::erase_if(tensors, [](const CheckpointTensor& t) {
    return t.part.view.type.shape.elements() == 0 && t.part.global.elements() != 0;
  });
  const auto key = [](const CheckpointTensor& t) {
    return fmt::format("{} {} {}\n", t.name, t.part.begin.ToString(), t.part.view.type.shape.ToString());
  };
  std::string own;
  for (const CheckpointTensor& t : tensors) own += key(t);
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
  std::erase_if(tensors, [&](const CheckpointTensor& t) { return taken.contains(key(t)); });
  return tensors;
}

Status RestoreTrainingState(const CheckpointReader& checkpoint, const Program& program, const BufferLookup& buffer,
                            const std::function<void(Bytes, Bytes)>& progress,
                            const std::vector<std::string>& trained) {
  const std::vector<CheckpointTensor> tensors = TrainingState(program, buffer);
  TEMPER_RETURN_IF_ERROR(CheckNames(checkpoint, tensors, trained));
  Bytes done{}, total{};
  for (const CheckpointTensor& t : tensors) total += t.part.view.type.bytes();
  std::map<std::string_view, const Trained*> rounded;  // values that are computed with in another type, by name
  const std::vector<Trained> values = TrainedValues(program);
  for (const Trained& t : values) {
    if (t.master) rounded[t.own->name] = &t;
  }
  HostWindow window, rounded_window;
  std::vector<std::byte> numbers;
  for (const CheckpointTensor& t : tensors) {
    const auto value = rounded.find(t.name);
    const bool rounds = value != rounded.end();
    const DevicePart to = buffer(rounds ? value->second->master->name : t.name);
    const DevicePart weight = rounds ? buffer(t.name) : DevicePart();
    const TensorType& type = weight.part.view.type;
    TEMPER_CHECK(!rounds || type.shape == t.part.view.type.shape) << t.name << " and its master are split differently";
    const auto put = [&](int64_t at, std::span<const std::byte> bytes) -> Status {
      TEMPER_RETURN_IF_ERROR(window.Put(to, at, bytes));
      if (!rounds) return OkStatus();
      const int64_t size = SizeOf(DType::kF32), n = std::ssize(bytes) / size;
      numbers.resize(static_cast<size_t>(n * SizeOf(type.dtype)));
      Convert(DType::kF32, bytes.data(), type.dtype, numbers.data(), n);
      return rounded_window.Put(weight, at / size * SizeOf(type.dtype), numbers);
    };
    TEMPER_RETURN_IF_ERROR(checkpoint.LoadTensor(t.name, t.whole(), {t.part.begin, t.part.view.type.shape}, put));
    TEMPER_RETURN_IF_ERROR(window.Flush());
    TEMPER_RETURN_IF_ERROR(rounded_window.Flush());
    done += t.part.view.type.bytes();
    if (progress) progress(done, total);
  }
  return OkStatus();
}

}  // namespace temper
