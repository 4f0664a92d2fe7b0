#include "checkpoint/training_state.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "checkpoint/adapter_config.h"
#include "format/conversion.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// A trainable value and where its f32 numbers and moments live.
struct Trained {
  const Buffer* own = nullptr;
  const Buffer* master = nullptr;  // null where `own` is f32 itself
  const Buffer* m = nullptr;
  const Buffer* v = nullptr;
  const Buffer& f32() const { return master ? *master : *own; }
};

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
    const Trained t{&b, find(MasterName(b.name)), find(AdamMName(b.name)), find(AdamVName(b.name))};
    TEMPER_CHECK(t.m && t.v) << program.name << ": trainable " << b.name
                             << " has no moments; is this the train Program?";
    TEMPER_CHECK(t.f32().type.dtype == DType::kF32) << t.f32().name << " is " << t.f32().type.ToString();
    trained.push_back(t);
  }
  return trained;
}

Status CheckNames(const CheckpointReader& checkpoint, const std::vector<CheckpointTensor>& expected) {
  constexpr char kRemedy[] = "the checkpoint is of another model or configuration; use the ones that it was made with";
  std::set<std::string_view> names;
  for (const CheckpointTensor& t : expected) {
    names.insert(t.name);
    const Manifest::Tensor* stored = checkpoint.manifest().Find(t.name);
    if (!stored) return NotFound(fmt::format("{} lacks tensor {}: {}", checkpoint.path(), t.name, kRemedy));
    if (stored->type != t.view.type) {
      return InvalidArgument(fmt::format("{}: tensor {} is {} but training needs {}: {}", checkpoint.path(), t.name,
                                         stored->type.ToString(), t.view.type.ToString(), kRemedy));
    }
  }
  for (const Manifest::Tensor& stored : checkpoint.manifest().tensors) {
    if (names.contains(stored.name)) continue;
    return InvalidArgument(
        fmt::format("{} has tensor {}, which training does not: {}", checkpoint.path(), stored.name, kRemedy));
  }
  return OkStatus();
}

}  // namespace

std::vector<CheckpointTensor> TrainingState(const Program& program, const BufferLookup& buffer) {
  std::vector<CheckpointTensor> tensors;
  const auto add = [&](const std::string& name, const Buffer& b, const char* file) {
    tensors.push_back({name, {buffer(b.name).view.data, b.type}, file, name});
  };
  for (const Trained& t : TrainedValues(program)) {
    add(t.own->name, t.f32(), t.own->role == Role::kAdapter ? kAdapterWeightsFile : kModelWeightsFile);
    add(t.m->name, *t.m, kStateFile);
    add(t.v->name, *t.v, kStateFile);
  }
  return tensors;
}

Status RestoreTrainingState(const CheckpointReader& checkpoint, const Program& program, const BufferLookup& buffer,
                            const std::function<void(Bytes, Bytes)>& progress) {
  const std::vector<CheckpointTensor> tensors = TrainingState(program, buffer);
  TEMPER_RETURN_IF_ERROR(CheckNames(checkpoint, tensors));
  Bytes done{}, total{};
  for (const CheckpointTensor& t : tensors) total += t.view.type.bytes();
  for (const CheckpointTensor& t : tensors) {
    TEMPER_RETURN_IF_ERROR(checkpoint.LoadTensor(t.name, t.view));
    done += t.view.type.bytes();
    if (progress) progress(done, total);
  }
  for (const Trained& t : TrainedValues(program)) {
    if (!t.master) continue;
    const View master = buffer(t.master->name).view, own = buffer(t.own->name).view;
    Convert(master.type.dtype, master.data, own.type.dtype, own.data, own.type.shape.elements());
  }
  return OkStatus();
}

}  // namespace temper
