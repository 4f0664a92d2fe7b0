// Option: one named setting of a command, bound to a variable, with name, type, range and help. Every way to set it
// (YAML, command line) or to show it (saved configuration, --help) uses the functions below.
//
// An Option points into the configuration it was made for and must not outlive it. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/json.h"
#include "settings/value_types.h"

namespace temper {

// A flag with an optional value: absent, present ("") or present with text. `--resume`, `--resume=checkpoint-100`.
struct OptionalText {
  std::optional<std::string>* value;
};

// A list, such as the files of a run. On the command line the option may be repeated; each time adds to the list.
struct Repeatable {
  // From a value as in YAML; texts of the command line are strings. `more`: add to the list, instead of replacing it.
  // On error the list is unchanged.
  std::function<Status(const OrderedJson& value, const std::string& where, bool more)> set;
  std::function<std::string()> as_yaml;
};

// An enum, by the names its values have in files.
struct Choice {
  std::vector<std::string_view> names;  // names[i] is the value i
  std::function<int()> get;
  std::function<void(int)> set;
};

// REQUIRES: E's values are 0 .. names.size() - 1.
template <class E>
Choice ChoiceOf(E& target, std::vector<std::string_view> names) {
  return {std::move(names), [&target] { return static_cast<int>(target); },
          [&target](int i) { target = static_cast<E>(i); }};
}

// The range of an option's numbers. `above` and `below` exclude their bound.
struct Range {
  double at_least = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();

  bool Contains(double v) const { return v >= at_least && v <= at_most && v > above && v < below; }
  std::string ToString() const;  // "at least 1", "above 0 and at most 1"
};

using OptionTarget = std::variant<bool*, int64_t*, NumberOrAuto, double*, std::string*, std::optional<int64_t>*,
                                  std::optional<double>*, std::optional<Bytes>*, OptionalText, TextOrList*, TextPairs*,
                                  IntPatterns*, NumberPatterns*, IntList*, JsonObject*, Choice, Repeatable>;

// What a run that goes on from a checkpoint may do with an option.
enum class OnResume : uint8_t {
  kSame,  // keep it: another value would change what the weights or the optimizer's states mean, or which rows are seen
  kGoesOn,                    // change it: training goes on with the new value, and says so
  kGoesOnWithAnotherProgram,  // the same, and the step is another Program
  kFree,                      // change it: it says where and how to run, not what to compute
};

struct Option {
  std::string name;  // "learning_rate"; "lora.r" is the key r of the section lora
  OptionTarget target;
  std::string help;          // one sentence without a full stop
  Range range = {};          // numbers only
  std::string default_text;  // for --help, if the default depends on other things; otherwise the target's value
  std::string value_hint;    // for --help, if the type says too little: "TEXT"
  std::optional<OnResume> on_resume = std::nullopt;  // not as the others of its group
  // For an option that is newer than files which must stay as they are: while its value has this text, printed settings
  // leave it out.
  std::string unsaid = {};
  std::string former = {};  // its name in files and scripts of before, which goes on working
};

// For std::visit on a target: one lambda per type.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// Sets an option's target. Error messages begin with `where`:
// "run.yaml line 3", "command line". On error the target is unchanged.
Status SetFromText(const Option& option, std::string_view text, const std::string& where);
Status SetFromJson(const Option& option, const OrderedJson& value, const std::string& where);
// REQUIRES: the option is repeatable.
Status AddFromText(const Option& option, std::string_view text, const std::string& where);

// A structured value given as text: "[q_proj, v_proj]", "{q_proj: 8}".
Result<OrderedJson> ParseYamlValue(std::string_view text, const std::string& where);

// The current value as YAML in flow style, numbers as the shortest text that reads back to the same bits.
std::string ValueAsYaml(const Option& option);

// A hint on the option's values, for --help: "NUMBER", "lora|full".
std::string ValueHint(const Option& option);

}  // namespace temper
