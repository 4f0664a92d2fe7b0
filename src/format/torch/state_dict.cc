#include "format/torch/state_dict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/utf8.h"
#include "format/quoted.h"

namespace temper {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

constexpr size_t kMostDims = 64;  // PyTorch's own limit

// What a name of the pickle means here.
enum class Meaning {
  kNothing,  // a value that is no tensor
  kStorage,  // a type of storages, of elements of `dtype`
  kDType,
  kSize,             // (dims)
  kTensor,           // (storage, offset, dims, strides, ...)
  kTensorOfDType,    // the same, and after two arguments more the dtype
  kParameter,        // (tensor, ...)
  kTensorWithState,  // (a kTensor or kTensorOfDType, class, its arguments, attributes)
};

struct KnownGlobal {
  PickleGlobal global;
  Meaning meaning = Meaning::kNothing;
  std::string_view dtype = "";  // in safetensors' words; of untyped storages none
};

constexpr std::array kKnownGlobals = {
    KnownGlobal{{"collections", "OrderedDict", /*makes_dict=*/true}},
    KnownGlobal{{"collections", "Counter"}},
    KnownGlobal{{"builtins", "set"}},
    KnownGlobal{{"__builtin__", "set"}},
    KnownGlobal{{"_codecs", "encode"}},
    KnownGlobal{{"torch", "device"}},
    KnownGlobal{{"torch", "Tensor"}},
    KnownGlobal{{"torch.nn.parameter", "Parameter"}},
    KnownGlobal{{"torch", "Size"}, Meaning::kSize},
    KnownGlobal{{"torch._utils", "_rebuild_tensor"}, Meaning::kTensor},
    KnownGlobal{{"torch._utils", "_rebuild_tensor_v2"}, Meaning::kTensor},
    KnownGlobal{{"torch._utils", "_rebuild_tensor_v3"}, Meaning::kTensorOfDType},
    KnownGlobal{{"torch._utils", "_rebuild_parameter"}, Meaning::kParameter},
    KnownGlobal{{"torch._utils", "_rebuild_parameter_with_state"}, Meaning::kParameter},
    KnownGlobal{{"torch._tensor", "_rebuild_from_type_v2"}, Meaning::kTensorWithState},
    KnownGlobal{{"torch.storage", "UntypedStorage"}, Meaning::kStorage},
    KnownGlobal{{"torch", "UntypedStorage"}, Meaning::kStorage},
    KnownGlobal{{"torch", "FloatStorage"}, Meaning::kStorage, "F32"},
    KnownGlobal{{"torch", "HalfStorage"}, Meaning::kStorage, "F16"},
    KnownGlobal{{"torch", "BFloat16Storage"}, Meaning::kStorage, "BF16"},
    KnownGlobal{{"torch", "DoubleStorage"}, Meaning::kStorage, "F64"},
    KnownGlobal{{"torch", "LongStorage"}, Meaning::kStorage, "I64"},
    KnownGlobal{{"torch", "IntStorage"}, Meaning::kStorage, "I32"},
    KnownGlobal{{"torch", "ShortStorage"}, Meaning::kStorage, "I16"},
    KnownGlobal{{"torch", "CharStorage"}, Meaning::kStorage, "I8"},
    KnownGlobal{{"torch", "ByteStorage"}, Meaning::kStorage, "U8"},
    KnownGlobal{{"torch", "BoolStorage"}, Meaning::kStorage, "BOOL"},
    KnownGlobal{{"torch", "ComplexFloatStorage"}, Meaning::kStorage, "C64"},
    KnownGlobal{{"torch", "float32"}, Meaning::kDType, "F32"},
    KnownGlobal{{"torch", "float16"}, Meaning::kDType, "F16"},
    KnownGlobal{{"torch", "bfloat16"}, Meaning::kDType, "BF16"},
    KnownGlobal{{"torch", "float64"}, Meaning::kDType, "F64"},
    KnownGlobal{{"torch", "int64"}, Meaning::kDType, "I64"},
    KnownGlobal{{"torch", "int32"}, Meaning::kDType, "I32"},
    KnownGlobal{{"torch", "int16"}, Meaning::kDType, "I16"},
    KnownGlobal{{"torch", "int8"}, Meaning::kDType, "I8"},
    KnownGlobal{{"torch", "uint8"}, Meaning::kDType, "U8"},
    KnownGlobal{{"torch", "uint16"}, Meaning::kDType, "U16"},
    KnownGlobal{{"torch", "uint32"}, Meaning::kDType, "U32"},
    KnownGlobal{{"torch", "uint64"}, Meaning::kDType, "U64"},
    KnownGlobal{{"torch", "bool"}, Meaning::kDType, "BOOL"},
    KnownGlobal{{"torch", "complex64"}, Meaning::kDType, "C64"},
    KnownGlobal{{"torch", "float8_e4m3fn"}, Meaning::kDType, "F8_E4M3"},
    KnownGlobal{{"torch", "float8_e5m2"}, Meaning::kDType, "F8_E5M2"},
    KnownGlobal{{"torch", "float8_e8m0fnu"}, Meaning::kDType, "F8_E8M0"},
    KnownGlobal{{"torch", "float8_e4m3fnuz"}, Meaning::kDType, "F8_E4M3FNUZ"},
    KnownGlobal{{"torch", "float8_e5m2fnuz"}, Meaning::kDType, "F8_E5M2FNUZ"},
};

constexpr auto kPickleGlobals = [] {
  std::array<PickleGlobal, kKnownGlobals.size()> globals;
  for (size_t i = 0; i < globals.size(); ++i) globals[i] = kKnownGlobals[i].global;
  return globals;
}();

// Where a file has its state dict, if it is not all of it: Lightning and many scripts; torch.save of several things;
// DeepSpeed.
constexpr std::array<std::string_view, 4> kDictsOfTensors = {"state_dict", "model_state_dict", "model", "module"};
// What wrappers put before all names: DataParallel, torch.compile.
constexpr std::array<std::string_view, 2> kWrapperPrefixes = {"module.", "_orig_mod."};

class StateDictReader {
 public:
  StateDictReader(const Pickle& pickle, const std::string& path, StateDict* dict)
      : pickle_(pickle), path_(path), dict_(*dict) {}

  Status Run() {
    Ref root = pickle_.root();
    TEMPER_RETURN_IF_ERROR(FindDict(&root));
    // As in Python, the last of several values of a key counts.
    std::map<std::string_view, Ref> values;
    const std::span<const Ref> items = pickle_.Items(root);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (pickle_.kind(items[i]) != Kind::kText) continue;
      if (!IsTensor(items[i + 1])) {
        values.erase(pickle_.Text(items[i]));
        continue;
      }
      values[pickle_.Text(items[i])] = items[i + 1];
      if (std::ssize(values) > StateDict::kMostTensors) {
        return Unsupported(
            fmt::format("{} has more than {} tensors: save them in several files", path_, StateDict::kMostTensors));
      }
    }
    const size_t prefix = PrefixOf(values);
    for (const auto& [name, value] : values) {
      if (!utf8::IsValid(name)) return DamagedTensor(name, "has a name that is not UTF-8");
      StateDict::Tensor tensor;
      tensor.name = name.substr(prefix);
      TEMPER_RETURN_IF_ERROR(ReadTensor(value, &tensor));
      dict_.tensors.push_back(std::move(tensor));
    }
    return OkStatus();
  }

 private:
  const KnownGlobal* GlobalOf(Ref v) const {
    if (pickle_.kind(v) != Kind::kGlobal) return nullptr;
    return &kKnownGlobals[static_cast<size_t>(pickle_.Global(v))];
  }
  Meaning CalleeOf(Ref v) const {
    return pickle_.kind(v) == Kind::kCall ? GlobalOf(pickle_.Callee(v))->meaning : Meaning::kNothing;
  }
  bool IsTensor(Ref v) const {
    switch (CalleeOf(v)) {
      case Meaning::kTensor:
      case Meaning::kTensorOfDType:
      case Meaning::kParameter:
      case Meaning::kTensorWithState:
        return true;
      default:
        return false;
    }
  }
  bool HoldsTensors(Ref dict) const {
    const std::span<const Ref> items = pickle_.Items(dict);
    for (size_t i = 1; i < items.size(); i += 2) {
      if (IsTensor(items[i])) return true;
    }
    return false;
  }

  Status FindDict(Ref* dict) const {
    constexpr int kMostNested = 4;
    for (int depth = 0; depth < kMostNested && pickle_.kind(*dict) == Kind::kDict; ++depth) {
      const std::span<const Ref> items = pickle_.Items(*dict);
      const auto inner = [&]() -> std::optional<Ref> {
        for (const std::string_view key : kDictsOfTensors) {
          for (size_t i = 0; i + 1 < items.size(); i += 2) {
            const bool named = pickle_.kind(items[i]) == Kind::kText && pickle_.Text(items[i]) == key;
            if (named && pickle_.kind(items[i + 1]) == Kind::kDict) return items[i + 1];
          }
        }
        return std::nullopt;
      }();
      if (!inner) {
        if (HoldsTensors(*dict)) return OkStatus();
        break;
      }
      *dict = *inner;
    }
    return Unsupported(
        fmt::format("{} holds {}, not a state dict (names and their tensors), by itself or under {}: "
                    "torch.save(model.state_dict(), FILE) writes one",
                    path_, Described(*dict), fmt::join(kDictsOfTensors, ", ")));
  }

  std::string Described(Ref v) const {
    if (IsTensor(v)) return "one tensor";
    if (pickle_.kind(v) != Kind::kDict) return "something else than a dict";
    constexpr size_t kShown = 5;
    std::vector<std::string> keys;
    const std::span<const Ref> items = pickle_.Items(v);
    for (size_t i = 0; i < items.size() && keys.size() < kShown; i += 2) {
      if (pickle_.kind(items[i]) == Kind::kText) keys.push_back(Quoted(pickle_.Text(items[i])));
    }
    if (keys.empty()) return items.empty() ? "an empty dict" : "a dict without names";
    return fmt::format("a dict of {}{}", fmt::join(keys, ", "), items.size() > 2 * kShown ? ", ..." : "");
  }

  // Bytes of the wrappers' prefixes that all names have.
  static size_t PrefixOf(const std::map<std::string_view, Ref>& values) {
    size_t size = 0;
    while (true) {
      const auto* const found = std::find_if(kWrapperPrefixes.begin(), kWrapperPrefixes.end(), [&](std::string_view p) {
        return std::all_of(values.begin(), values.end(),
                           [&](const auto& v) { return v.first.substr(size).starts_with(p); });
      });
      if (values.empty() || found == kWrapperPrefixes.end()) return size;
      size += found->size();
    }
  }

  Status DamagedTensor(std::string_view name, const std::string& what) const {
    return Corrupt(fmt::format("{}: tensor {} {}: fetch or copy the file again", path_, Quoted(name), what));
  }

  // Dims or strides.
  bool TakeNumbers(Ref v, std::vector<int64_t>* numbers) const {
    if (CalleeOf(v) == Meaning::kSize) {
      const auto arguments = pickle_.Items(pickle_.Argument(v));
      if (arguments.size() != 1) return false;
      v = arguments[0];
    }
    if (pickle_.kind(v) != Kind::kTuple && pickle_.kind(v) != Kind::kList) return false;
    const std::span<const Ref> items = pickle_.Items(v);
    if (items.size() > kMostDims) return false;
    for (const Ref item : items) {
      if (pickle_.kind(item) != Kind::kInt || pickle_.Int(item) < 0) return false;
      numbers->push_back(pickle_.Int(item));
    }
    return true;
  }

  Status ReadTensor(Ref v, StateDict::Tensor* t) {
    Meaning meaning = CalleeOf(v);
    std::span<const Ref> arguments = pickle_.Items(pickle_.Argument(v));
    if (meaning == Meaning::kParameter) {
      if (arguments.empty() || !IsTensor(arguments[0])) return DamagedTensor(t->name, "is a parameter of no tensor");
      v = arguments[0];
      meaning = CalleeOf(v);
      arguments = pickle_.Items(pickle_.Argument(v));
    }
    if (meaning == Meaning::kTensorWithState) {
      const KnownGlobal* const made_by = arguments.size() == 4 ? GlobalOf(arguments[0]) : nullptr;
      if (made_by == nullptr || pickle_.kind(arguments[2]) != Kind::kTuple) {
        return DamagedTensor(t->name, "is made in no known way");
      }
      meaning = made_by->meaning;
      arguments = pickle_.Items(arguments[2]);
    }
    if (meaning != Meaning::kTensor && meaning != Meaning::kTensorOfDType) {
      return DamagedTensor(t->name, "is made in no known way");
    }
    if (arguments.size() < (meaning == Meaning::kTensor ? 4 : 7) || pickle_.kind(arguments[1]) != Kind::kInt ||
        pickle_.Int(arguments[1]) < 0 || !TakeNumbers(arguments[2], &t->dims) ||
        !TakeNumbers(arguments[3], &t->strides) || t->dims.size() != t->strides.size()) {
      return DamagedTensor(t->name, "has damaged dims, strides or offset");
    }
    t->offset = pickle_.Int(arguments[1]);
    TEMPER_RETURN_IF_ERROR(TakeStorage(arguments[0], t));
    if (meaning == Meaning::kTensorOfDType) {
      const KnownGlobal* const dtype = GlobalOf(arguments[6]);
      if (dtype == nullptr || dtype->meaning != Meaning::kDType) return DamagedTensor(t->name, "has no known dtype");
      t->dtype = FindStoredDType(dtype->dtype);
    }
    if (t->dtype == nullptr) return DamagedTensor(t->name, "has no dtype");
    return CheckPlace(*t);
  }

  // ('storage', type, key, device, elements), and in the old form the part of it that is a storage itself.
  Status TakeStorage(Ref v, StateDict::Tensor* t) {
    if (pickle_.kind(v) != Kind::kPersistent || pickle_.kind(pickle_.Argument(v)) != Kind::kTuple) {
      return DamagedTensor(t->name, "has no storage");
    }
    const std::span<const Ref> id = pickle_.Items(pickle_.Argument(v));
    const KnownGlobal* const type = id.size() == 5 || id.size() == 6 ? GlobalOf(id[1]) : nullptr;
    if (type == nullptr || type->meaning != Meaning::kStorage || pickle_.kind(id[0]) != Kind::kText ||
        pickle_.Text(id[0]) != "storage" || pickle_.kind(id[2]) != Kind::kText || pickle_.kind(id[4]) != Kind::kInt ||
        pickle_.Int(id[4]) < 0) {
      return DamagedTensor(t->name, "has a damaged storage");
    }
    if (id.size() == 6 && pickle_.kind(id[5]) != Kind::kNone) {
      return Unsupported(
          fmt::format("{}: tensor {} lies in a part of a storage, as PyTorch before 0.4 saved it: save "
                      "the file again with torch.save",
                      path_, Quoted(t->name)));
    }
    t->dtype = FindStoredDType(type->dtype);
    StateDict::Storage storage = {pickle_.Text(id[2]), pickle_.Int(id[4]),
                                  t->dtype == nullptr ? 1 : t->dtype->bits / 8};
    int64_t bytes = 0;
    if (__builtin_mul_overflow(storage.elements, storage.element_size, &bytes)) {
      return DamagedTensor(t->name, "has a storage of more bytes than 64 bits can count");
    }
    const auto [known, is_new] = storages_.emplace(storage.key, dict_.storages.size());
    t->storage = known->second;
    if (is_new) {
      dict_.storages.push_back(storage);
    } else if (dict_.storages[t->storage].bytes() != bytes) {
      return DamagedTensor(t->name, "shares a storage whose size another tensor says otherwise");
    }
    return OkStatus();
  }

  Status CheckPlace(const StateDict::Tensor& t) const {
    int64_t bits = t.dtype->bits, last = t.offset;
    bool empty = false;
    for (size_t d = 0; d < t.dims.size(); ++d) {
      empty = empty || t.dims[d] == 0;
      int64_t reach = 0;
      if ((t.dims[d] > 0 && __builtin_mul_overflow(bits, t.dims[d], &bits)) ||
          (t.dims[d] > 1 && (__builtin_mul_overflow(t.dims[d] - 1, t.strides[d], &reach) ||
                             __builtin_add_overflow(last, reach, &last)))) {
        return DamagedTensor(t.name, "has more bytes than 64 bits can count");
      }
    }
    const StateDict::Storage& storage = dict_.storages[t.storage];
    const int64_t elements = storage.bytes() / (t.dtype->bits / 8);
    if (empty ? t.offset > elements : last >= elements) {
      return DamagedTensor(t.name, fmt::format("reaches to element {} of a storage of {}", last, elements));
    }
    return OkStatus();
  }

  const Pickle& pickle_;
  const std::string& path_;
  StateDict& dict_;
  std::map<std::string_view, size_t> storages_;  // by key
};

}  // namespace

std::span<const PickleGlobal> StateDict::Globals() {
  return kPickleGlobals;
}

Result<StateDict> StateDict::Read(const Pickle& pickle, const std::string& path) {
  StateDict dict;
  TEMPER_RETURN_IF_ERROR(StateDictReader(pickle, path, &dict).Run());
  return dict;
}

}  // namespace temper
