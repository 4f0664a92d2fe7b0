#include "run/teacher_model.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "run/other_token.h"

namespace temper {

Status OpenTeacher(Env& env, const TeacherChoice& choice, const std::string& own_name, OpenedModel* own) {
  TEMPER_ASSIGN_OR_RETURN(OpenedModel teacher, OpenedModel::Open(env, {.model = choice.teacher,
                                                                       .needs_weights = choice.needs_weights,
                                                                       .by_name = choice.by_name}));
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(fmt::format("teacher {}: {}", choice.teacher, why));
  };
  if (teacher.adapter()) return refuse("it is an adapter: merge it by temper export, and give the result");
  const ModelFacts &facts = teacher.model().facts(), &own_facts = own->model().facts();
  if (facts.classes > 0) return refuse("it judges texts and predicts no words: give a model of language");
  if (facts.vocab != own_facts.vocab) {
    return refuse(
        fmt::format("it has {} words, and {} has {}, but distributions over the same words are compared: give a model "
                    "with the same vocabulary",
                    facts.vocab, own_name, own_facts.vocab));
  }
  if (const auto other = FirstOtherToken(*own, teacher)) {
    return refuse(
        fmt::format("token {} is {} there, and {} in {}, which makes the tokens of both: give a model with "
                    "the same vocabulary",
                    other->id, other->theirs, other->own, own_name));
  }
  if (choice.max_seq_len > facts.max_positions) {
    const std::string rows =
        fmt::format("rows of {} tokens are longer than its {} positions", choice.max_seq_len, facts.max_positions);
    if (facts.positions_are_learned) {
      return refuse(
          fmt::format("{}, and it has no embedding for the rest: set max_seq_len: {}", rows, facts.max_positions));
    }
    LogWarning(fmt::format("teacher {}: {}", choice.teacher, rows));
  }
  TEMPER_ASSIGN_OR_RETURN(const BaseType base, BaseTypeOf(choice.base_dtype, facts.modules_format));
  TEMPER_RETURN_IF_ERROR(CheckKeptType("teacher_base_dtype", base, choice.dtype));
  const DType dtype = choice.dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
  BaseFormat format = BaseFormatOf(facts, FormatOf(base), /*embedding=*/std::nullopt, dtype,
                                   /*dequantised_first=*/false);
  own->LearnFrom(std::move(teacher), std::move(format));
  return OkStatus();
}

std::string TeacherText(const OpenedModel& own, const std::string& path) {
  if (own.teacher() == nullptr) return "";
  const Model& model = own.teacher()->model();
  return fmt::format("{} ({}), {}", path, model.facts().architecture,
                     ParametersText(NumParameters(model), NumActiveParameters(model)));
}

}  // namespace temper
