#include "format/torch/pickle.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "format/quoted.h"

namespace temper {

std::string_view Pickle::Text(Ref v) const {
  return text_.substr(static_cast<size_t>(values_[v].at), values_[v].n);
}

std::span<const Pickle::Ref> Pickle::Items(Ref v) const {
  const Value& value = values_[v];
  if (value.kind != Kind::kTuple) return containers_[static_cast<size_t>(value.at)];
  return std::span(tuples_).subspan(static_cast<size_t>(value.at), value.n);
}

// One walk over the opcodes. Every opcode adds a value at most, and puts one at most on the stack.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, std::span<const PickleGlobal> allowed, const std::string& path, Pickle* pickle)
      : bytes_(bytes), allowed_(allowed), path_(path), pickle_(*pickle) {
    pickle_.text_ = bytes;
  }

  Status Run() {
    if (bytes_.size() < 2 || bytes_[0] != '\x80') return Damaged("does not begin with a protocol");
    while (!stopped_) {
      if (at_ >= bytes_.size()) return Damaged("ends without its last opcode");
      opcode_at_ = at_;
      TEMPER_RETURN_IF_ERROR(Step(static_cast<uint8_t>(bytes_[at_++])));
      if (std::ssize(pickle_.values_) > Pickle::kMostValues || std::ssize(stack_) > Pickle::kMostValues ||
          std::ssize(pickle_.tuples_) > 2 * Pickle::kMostValues || std::ssize(marks_) > Pickle::kMostValues ||
          memo_.size() > Pickle::kMostValues / 2 || added_ > 2 * Pickle::kMostValues) {
        return Unsupported(
            fmt::format("{}: its pickle has more than {} values: a model of so many tensors is saved in "
                        "several files",
                        path_, Pickle::kMostValues));
      }
    }
    pickle_.size_ = static_cast<int64_t>(at_);
    return OkStatus();
  }

 private:
  using Kind = Pickle::Kind;
  using Ref = Pickle::Ref;

  Status Damaged(const std::string& what) const {
    return Corrupt(fmt::format("{}: its pickle {} (byte {}): fetch or copy the file again", path_, what, opcode_at_));
  }

  Status Step(uint8_t opcode) {
    switch (opcode) {
      case 0x80: {  // PROTO
        TEMPER_ASSIGN_OR_RETURN(const uint64_t protocol, Number(1));
        if (protocol >= 2 && protocol <= 5) return OkStatus();
        return Unsupported(fmt::format("{}: its pickle has protocol {}; 2 to 5 are read", path_, protocol));
      }
      case 0x95:  // FRAME: the opcodes in it follow
        return Number(8).status();
      case '.':  // STOP
        TEMPER_RETURN_IF_ERROR(Pop(&pickle_.root_));
        if (!stack_.empty() || !marks_.empty()) return Damaged("leaves values on its stack");
        stopped_ = true;
        return OkStatus();
      case '(':  // MARK
        marks_.push_back(stack_.size());
        return OkStatus();
      case '0': {  // POP
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
          return OkStatus();
        }
        Ref gone = 0;
        return Pop(&gone);
      }
      case '1': {  // POP_MARK
        std::span<const Ref> gone;
        TEMPER_RETURN_IF_ERROR(ToMark(&gone));
        return Drop(gone.size());
      }
      case '2':  // DUP
        if (!HasTop(1)) return Damaged("takes from an empty stack");
        stack_.push_back(stack_.back());
        return OkStatus();

      case 'N':
        return Push({.kind = Kind::kNone});
      case 0x88:  // NEWTRUE
        return Push({.kind = Kind::kBool, .at = 1});
      case 0x89:  // NEWFALSE
        return Push({.kind = Kind::kBool, .at = 0});
      case 'J':  // BININT
        return PushInteger(4, /*is_signed=*/true);
      case 'K':  // BININT1
        return PushInteger(1, /*is_signed=*/false);
      case 'M':  // BININT2
        return PushInteger(2, /*is_signed=*/false);
      case 0x8a:  // LONG1
        return PushLong(1);
      case 0x8b:  // LONG4
        return PushLong(4);
      case 'G':  // BINFLOAT
        TEMPER_RETURN_IF_ERROR(Number(8).status());
        return Push({.kind = Kind::kFloat});
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8c:  // SHORT_BINUNICODE
        return PushText(1);
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
      case 'X':  // BINUNICODE
        return PushText(4);
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return PushText(8);

      case ')':
        return PushTuple({});
      case 't':  // TUPLE
        return TupleOfMarked();
      case 0x85:  // TUPLE1, 2, 3
      case 0x86:
      case 0x87: {
        const size_t n = opcode - 0x84u;
        if (!HasTop(n)) return Damaged("takes from an empty stack");
        const std::vector<Ref> items(stack_.end() - static_cast<ptrdiff_t>(n), stack_.end());
        TEMPER_RETURN_IF_ERROR(Drop(n));
        return PushTuple(items);
      }
      case 0x91:  // FROZENSET
        return TupleOfMarked();
      case ']':   // EMPTY_LIST
      case 0x8f:  // EMPTY_SET
        return PushContainer(Kind::kList);
      case '}':
        return PushContainer(Kind::kDict);
      case 'a': {  // APPEND
        Ref item = 0;
        TEMPER_RETURN_IF_ERROR(Pop(&item));
        return Add(Kind::kList, std::span(&item, 1));
      }
      case 'e':   // APPENDS
      case 0x90:  // ADDITEMS
        return AddMarked(Kind::kList);
      case 's': {  // SETITEM
        if (!HasTop(2)) return Damaged("takes from an empty stack");
        const Ref item[] = {stack_[stack_.size() - 2], stack_.back()};
        TEMPER_RETURN_IF_ERROR(Drop(2));
        return Add(Kind::kDict, item);
      }
      case 'u':  // SETITEMS
        return AddMarked(Kind::kDict);

      case 'q':  // BINPUT
        return Memorise(1);
      case 'r':  // LONG_BINPUT
        return Memorise(4);
      case 0x94:  // MEMOIZE
        return Memorise(0);
      case 'h':  // BINGET
        return Recall(1);
      case 'j':  // LONG_BINGET
        return Recall(4);

      case 'c': {  // GLOBAL
        std::string_view module, name;
        TEMPER_RETURN_IF_ERROR(Line(&module));
        TEMPER_RETURN_IF_ERROR(Line(&name));
        return PushGlobal(module, name);
      }
      case 0x93: {  // STACK_GLOBAL
        Ref name = 0, module = 0;
        TEMPER_RETURN_IF_ERROR(Pop(&name));
        TEMPER_RETURN_IF_ERROR(Pop(&module));
        if (pickle_.kind(name) != Kind::kText || pickle_.kind(module) != Kind::kText) {
          return Damaged("has a name that is not text");
        }
        return PushGlobal(pickle_.Text(module), pickle_.Text(name));
      }
      case 'R':     // REDUCE
      case 0x81: {  // NEWOBJ
        Ref arguments = 0, callee = 0;
        TEMPER_RETURN_IF_ERROR(Pop(&arguments));
        TEMPER_RETURN_IF_ERROR(Pop(&callee));
        if (pickle_.kind(callee) != Kind::kGlobal || pickle_.kind(arguments) != Kind::kTuple) {
          return Damaged("calls what is no name, or with what is no tuple");
        }
        if (allowed_[static_cast<size_t>(pickle_.Global(callee))].makes_dict) {
          return PushDict(arguments);
        }
        return Push({.kind = Kind::kCall, .n = callee, .at = arguments});
      }
      case 'b': {  // BUILD: attributes, of which none is used (a state dict's _metadata)
        Ref state = 0;
        TEMPER_RETURN_IF_ERROR(Pop(&state));
        if (!HasTop(1)) return Damaged("takes from an empty stack");
        const Kind kind = pickle_.kind(stack_.back());
        if (kind == Kind::kDict || kind == Kind::kCall) return OkStatus();
        return Damaged("gives attributes to what has none");
      }
      case 'Q': {  // BINPERSID
        Ref id = 0;
        TEMPER_RETURN_IF_ERROR(Pop(&id));
        return Push({.kind = Kind::kPersistent, .at = id});
      }
      default:
        break;
    }
    static constexpr std::string_view kTextOpcodes = "ILFSVgpdlioP";  // those of protocols 0 and 1
    if (kTextOpcodes.find(static_cast<char>(opcode)) != kTextOpcodes.npos) {
      return Unsupported(
          fmt::format("{}: its pickle has opcode '{}' of protocol 0 or 1; save it again with a newer "
                      "torch.save",
                      path_, static_cast<char>(opcode)));
    }
    return Damaged(fmt::format("has opcode 0x{:02x}, which torch.save never writes", opcode));
  }

  // An unsigned little-endian integer.
  Result<uint64_t> Number(size_t size) {
    if (bytes_.size() - at_ < size) return Damaged("ends inside an opcode");
    uint64_t n = 0;
    std::memcpy(&n, bytes_.data() + at_, size);
    at_ += size;
    return n;
  }

  Status Line(std::string_view* line) {
    constexpr size_t kMost = 1000;
    const size_t end = bytes_.substr(at_, kMost).find('\n');
    if (end == bytes_.npos) return Damaged("has a name that does not end");
    *line = bytes_.substr(at_, end);
    at_ += end + 1;
    return OkStatus();
  }

  bool HasTop(size_t n) const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()) >= n; }

  Status Pop(Ref* top) {
    if (!HasTop(1)) return Damaged("takes from an empty stack");
    *top = stack_.back();
    stack_.pop_back();
    return OkStatus();
  }

  Status Drop(size_t n) {
    stack_.resize(stack_.size() - n);
    return OkStatus();
  }

  // Takes the last mark away; `items` are those above it, still on the stack.
  Status ToMark(std::span<const Ref>* items) {
    if (marks_.empty()) return Damaged("looks for a mark that is not there");
    *items = std::span(stack_).subspan(marks_.back());
    marks_.pop_back();
    return OkStatus();
  }

  Status Push(Pickle::Value value) {
    stack_.push_back(static_cast<Ref>(pickle_.values_.size()));
    pickle_.values_.push_back(value);
    return OkStatus();
  }

  Status PushInteger(size_t size, bool is_signed) {
    TEMPER_ASSIGN_OR_RETURN(const uint64_t n, Number(size));
    return Push({.kind = Kind::kInt, .at = is_signed ? static_cast<int32_t>(n) : static_cast<int64_t>(n)});
  }

  Status PushLong(size_t length_size) {
    TEMPER_ASSIGN_OR_RETURN(const uint64_t size, Number(length_size));
    if (size > sizeof(int64_t)) {
      at_ -= length_size;
      return PushText(length_size);
    }
    TEMPER_ASSIGN_OR_RETURN(uint64_t n, Number(size));
    const bool negative = size > 0 && size < sizeof(n) && (n >> (8 * size - 1) & 1) != 0;
    if (negative) n |= ~uint64_t{0} << (8 * size);
    return Push({.kind = Kind::kInt, .at = static_cast<int64_t>(n)});
  }

  Status PushText(size_t length_size) {
    TEMPER_ASSIGN_OR_RETURN(const uint64_t size, Number(length_size));
    if (bytes_.size() - at_ < size) return Damaged("ends inside an opcode");
    const size_t at = at_;
    at_ += size;
    return Push({.kind = Kind::kText, .n = static_cast<uint32_t>(size), .at = static_cast<int64_t>(at)});
  }

  Status PushTuple(std::span<const Ref> items) {
    const auto at = static_cast<int64_t>(pickle_.tuples_.size());
    pickle_.tuples_.insert(pickle_.tuples_.end(), items.begin(), items.end());
    return Push({.kind = Kind::kTuple, .n = static_cast<uint32_t>(items.size()), .at = at});
  }

  Status TupleOfMarked() {
    std::span<const Ref> items;
    TEMPER_RETURN_IF_ERROR(ToMark(&items));
    const auto at = static_cast<int64_t>(pickle_.tuples_.size());
    const size_t n = items.size();
    pickle_.tuples_.insert(pickle_.tuples_.end(), items.begin(), items.end());
    TEMPER_RETURN_IF_ERROR(Drop(n));
    return Push({.kind = Kind::kTuple, .n = static_cast<uint32_t>(n), .at = at});
  }

  Status PushContainer(Kind kind) {
    const auto at = static_cast<int64_t>(pickle_.containers_.size());
    pickle_.containers_.emplace_back();
    return Push({.kind = kind, .at = at});
  }

  // Python 2 calls with the items, a list of pairs; Python 3 with nothing, and adds them.
  Status PushDict(Ref arguments) {
    std::vector<Ref> items;
    if (pickle_.Items(arguments).size() > 1) return Damaged("makes a dict of several values");
    for (const Ref list : pickle_.Items(arguments)) {
      if (pickle_.kind(list) != Kind::kList) return Damaged("makes a dict of what is no list");
      for (const Ref pair : pickle_.Items(list)) {
        const bool holds = pickle_.kind(pair) == Kind::kList || pickle_.kind(pair) == Kind::kTuple;
        if (!holds || pickle_.Items(pair).size() != 2) return Damaged("makes a dict of what are no pairs");
        items.insert(items.end(), pickle_.Items(pair).begin(), pickle_.Items(pair).end());
        if (std::ssize(items) > Pickle::kMostValues) return Damaged("makes a dict of too many items");
      }
    }
    TEMPER_RETURN_IF_ERROR(PushContainer(Kind::kDict));
    return Add(Kind::kDict, items);
  }

  // To the list or dict on top of the stack.
  Status Add(Kind kind, std::span<const Ref> items) {
    if (!HasTop(1) || pickle_.kind(stack_.back()) != kind) return Damaged("adds items to what holds none");
    auto& container = pickle_.containers_[static_cast<size_t>(pickle_.values_[stack_.back()].at)];
    container.insert(container.end(), items.begin(), items.end());
    added_ += std::ssize(items);
    return OkStatus();
  }

  Status AddMarked(Kind kind) {
    std::span<const Ref> marked;
    TEMPER_RETURN_IF_ERROR(ToMark(&marked));
    if (kind == Kind::kDict && marked.size() % 2 != 0) return Damaged("adds a key without a value");
    const std::vector<Ref> items(marked.begin(), marked.end());
    TEMPER_RETURN_IF_ERROR(Drop(items.size()));
    return Add(kind, items);
  }

  Status Memorise(size_t index_size) {
    if (!HasTop(1)) return Damaged("takes from an empty stack");
    uint64_t index = memo_.size();
    if (index_size > 0) {
      TEMPER_ASSIGN_OR_RETURN(index, Number(index_size));
    }
    memo_[static_cast<uint32_t>(index)] = stack_.back();
    return OkStatus();
  }

  Status Recall(size_t index_size) {
    TEMPER_ASSIGN_OR_RETURN(const uint64_t index, Number(index_size));
    const auto found = memo_.find(static_cast<uint32_t>(index));
    if (found == memo_.end()) return Damaged("recalls what it has not memorised");
    stack_.push_back(found->second);
    return OkStatus();
  }

  Status PushGlobal(std::string_view module, std::string_view name) {
    for (size_t i = 0; i < allowed_.size(); ++i) {
      if (allowed_[i].module == module && allowed_[i].name == name) {
        return Push({.kind = Kind::kGlobal, .at = static_cast<int64_t>(i)});
      }
    }
    return Unsupported(
        fmt::format("{}: its pickle refers to {}, which Temper neither knows nor runs: it builds tensors and dicts of "
                    "them, nothing "
                    "else. Save the state dict alone: torch.save(model.state_dict(), FILE)",
                    path_, Quoted(fmt::format("{}.{}", module, name))));
  }

  const std::string_view bytes_;
  const std::span<const PickleGlobal> allowed_;
  const std::string& path_;
  Pickle& pickle_;
  size_t at_ = 0, opcode_at_ = 0;
  bool stopped_ = false;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, Ref> memo_;
  int64_t added_ = 0;  // to containers
};

Result<Pickle> Pickle::Read(std::string_view bytes, std::span<const PickleGlobal> allowed, const std::string& path) {
  Pickle pickle;
  TEMPER_RETURN_IF_ERROR(PickleReader(bytes, allowed, path, &pickle).Run());
  return pickle;
}

}  // namespace temper
