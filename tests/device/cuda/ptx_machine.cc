#include "ptx_machine.h"

#include <cstring>

#include "ptx_block.h"
#include "ptx_decoding.h"
#include "ptx_program.h"

namespace temper::ptx {

struct Module::State {
  Program program;
  bool backwards = false;
};

Module::Module(std::unique_ptr<State> state) : state_(std::move(state)) {}
Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::Parse(std::string_view text) {
  auto state = std::make_unique<State>();
  TEMPER_ASSIGN_OR_RETURN(state->program.text, ParseText(text));
  TEMPER_RETURN_IF_ERROR(Decode(state->program));
  return std::unique_ptr<Module>(new Module(std::move(state)));
}

bool Module::Has(std::string_view kernel) const {
  return state_->program.kernels.find(kernel) != state_->program.kernels.end();
}

KernelShape Module::ShapeOf(std::string_view kernel) const {
  const auto found = state_->program.kernels.find(kernel);
  TEMPER_CHECK(found != state_->program.kernels.end()) << kernel;
  const TextFunction& text = *found->second.text;
  KernelShape shape;
  for (const Variable& parameter : text.parameters) shape.parameter_bytes.push_back(parameter.bytes);
  shape.max_threads = text.max_threads;
  shape.static_shared_bytes = text.shared_bytes;
  return shape;
}

Status Module::Run(const Launch& launch, AddressSpace& memory) {
  Program& program = state_->program;
  const auto found = program.kernels.find(launch.kernel);
  TEMPER_CHECK(found != program.kernels.end()) << launch.kernel;
  const Kernel& kernel = found->second;
  const std::string name(launch.kernel);
  const auto [blocks_x, blocks_y, blocks_z] = launch.grid;
  const auto [x, y, z] = launch.block;
  // Allowed by every GPU that the kernels are compiled for.
  if (x < 1 || y < 1 || z < 1 || x * y * z > kernel.text->max_threads) {
    return InvalidArgument(name + ": " + std::to_string(x * y * z) + " threads, of at most " +
                           std::to_string(kernel.text->max_threads));
  }
  if (z > 64) {
    return InvalidArgument(name + ": a block of " + std::to_string(x) + " x " + std::to_string(y) + " x " +
                           std::to_string(z));
  }
  if (blocks_x < 1 || blocks_y < 1 || blocks_z < 1 || blocks_y > 65535 || blocks_z > 65535) {
    return InvalidArgument(name + ": a grid of " + std::to_string(blocks_x) + " x " + std::to_string(blocks_y) + " x " +
                           std::to_string(blocks_z));
  }
  std::vector<std::byte> parameters(static_cast<size_t>(kernel.text->parameter_bytes));
  for (size_t i = 0; i < kernel.text->parameters.size(); ++i) {
    const Variable& parameter = kernel.text->parameters[i];
    std::memcpy(parameters.data() + parameter.at, launch.arguments[i], static_cast<size_t>(parameter.bytes));
  }
  Block block(program, kernel, launch, parameters, program.text->globals, memory);
  // Every other launch starts at the last block: no kernel may rely on the order of blocks.
  const int64_t blocks = int64_t{blocks_x} * blocks_y * blocks_z;
  state_->backwards = !state_->backwards;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t at = state_->backwards ? blocks - 1 - n : n;
    TEMPER_RETURN_IF_ERROR(block.Run(static_cast<int>(at % blocks_x), static_cast<int>(at / blocks_x % blocks_y),
                                     static_cast<int>(at / blocks_x / blocks_y)));
  }
  return OkStatus();
}

}  // namespace temper::ptx
