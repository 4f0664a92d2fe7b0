set(TEMPER_LAYERS "" CACHE INTERNAL "")

# temper_together(out target sources...): `out` is the sources of `target`, those that may be compiled together replaced by
# files that include several each, a batch: headers take most of the time to compile a source of a few hundred lines.
# Their unnamed namespaces are one: tools/check_one_definition.py looks at names that two of them define. Operators
# (graph/ops) repeat each other's names by design and are compiled one by one, as are instruction sets' sources, which
# have flags of their own. Not CMake's unity build, which includes absolute paths: objects would depend on where the
# checkout lies.
#
# All sources begin as one batch. While a batch has more than TEMPER_BATCH_BYTES (of some layers fewer) it is cut in two:
# first sources that name ops from the others, which need not be compiled again when an op is added, then by a bit of the
# hash of each name. So a new source, or one that grows, changes its own batch alone.
set(TEMPER_BATCH_BYTES 80000)  # some 15 seconds of a slow processor
set(TEMPER_BATCH_BYTES_OF_FACES 50000)  # of layers that include almost all others, api and run
function(temper_together out target)
  set(alone ${ARGN})
  set(most ${TEMPER_BATCH_BYTES})
  if(target MATCHES "^temper_(api|run)$")
    set(most ${TEMPER_BATCH_BYTES_OF_FACES})
  endif()
  if(TEMPER_UNITY)
    set(together ${ARGN})
    set(one_by_one "_(avx2|avx512|amx)\\.cc$|/graph/ops/|^\\$<TARGET_OBJECTS:")
    list(FILTER together EXCLUDE REGEX "${one_by_one}")
    list(FILTER alone INCLUDE REGEX "${one_by_one}")
    set(files "")  # BYTES:CUTS:PATH, CUTS the batch's suffix were it cut as often as possible
    foreach(source IN LISTS together)
      file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
      string(REGEX REPLACE "^src/" "" path ${path})
      file(SIZE ${source} bytes)
      file(STRINGS ${source} json REGEX "^#include <nlohmann/json\\.hpp>" LIMIT_COUNT 1)
      if(json)  # its templates are compiled with each source
        math(EXPR bytes "${bytes} * 3 / 2")
      endif()
      file(STRINGS ${source} names REGEX "^#include \"graph/(named_ops|op_table)\\.h\"" LIMIT_COUNT 1)
      set(cuts _)
      if(names)
        set(cuts o)
      endif()
      string(MD5 hash ${path})
      string(SUBSTRING ${hash} 0 2 hash)
      foreach(bit RANGE 7)
        math(EXPR digit "(0x${hash} >> ${bit}) & 1")
        string(APPEND cuts ${digit})
      endforeach()
      list(APPEND files ${bytes}:${cuts}:${path})
    endforeach()
    set(batches "any")
    while(batches)
      list(POP_FRONT batches batch)
      string(REGEX REPLACE "^any" "" cut "${batch}")
      set(bytes 0)
      set(lines "")
      foreach(file IN LISTS files)
        if(file MATCHES "^([0-9]+):${cut}[^:]*:(.*)$")
          math(EXPR bytes "${bytes} + ${CMAKE_MATCH_1}")
          string(APPEND lines "#include \"${CMAKE_MATCH_2}\"\n")
        endif()
      endforeach()
      string(REGEX MATCHALL "#include" count "${lines}")
      list(LENGTH count count)
      string(LENGTH "${cut}" depth)
      if(bytes GREATER most AND count GREATER 1 AND depth LESS 9)
        if(depth EQUAL 0)
          list(APPEND batches any_ anyo)
        else()
          list(APPEND batches ${batch}0 ${batch}1)
        endif()
      elseif(count GREATER 0)
        set(file ${CMAKE_BINARY_DIR}/together/${target}${cut}.cc)
        file(CONFIGURE OUTPUT ${file} CONTENT "${lines}" @ONLY)
        list(APPEND alone ${file})
      endif()
    endwhile()
  endif()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()

# Sources whose name ends in _avx2.cc, _avx512.cc or _amx.cc are compiled for that instruction set; they run only after
# a runtime check (backend/cpu/isa.h), so the binary starts on any x86-64. g++ 12 warns about its own intrinsics'
# headers (PR 105593), hence -Wno-maybe-uninitialized.
function(temper_instruction_sets sources)
  set(avx2 -O3 -mavx2 -mfma -mf16c)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND avx2 -Wno-maybe-uninitialized)
  endif()
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mprfchw -mprefer-vector-width=512)
  set(amx ${avx512} -mamx-tile -mamx-bf16)
  foreach(source IN LISTS sources)
    if(source MATCHES "_(avx2|avx512|amx)\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${CMAKE_MATCH_1}}"
                                  SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# temper_precompiled(target headers...): precompiles common headers, and these, once for all targets that name `target`
# in target_precompile_headers(... REUSE_FROM). A compiler accepts them only with the same flags. A project header would
# cause full rebuilds after each change; nlohmann/json.hpp costs targets without JSON more than it saves the others.
function(temper_precompiled target)
  set(source ${CMAKE_BINARY_DIR}/${target}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${target} OBJECT ${source})
  target_link_libraries(${target} PRIVATE fmt::fmt)
  # clang's would contain the time of CMake's header, which is new in each build folder: ccache would never hit.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <span> <sstream> <string> <string_view>
    <unordered_map> <utility> <variant> <vector> <fmt/core.h> ${ARGN})
endfunction()
temper_precompiled(temper_headers)
if(TEMPER_FUZZ)
  temper_fuzzed("" temper_headers)
endif()

# temper_with_headers(target): of a target that is no layer, with the flags of all. It must link temper_base. Fuzzed code,
# and with it the headers, has flags of its own.
function(temper_with_headers target)
  if(NOT TEMPER_FUZZ)
    target_precompile_headers(${target} REUSE_FROM temper_headers)
  endif()
endfunction()

# The only object that depends on where the build lies (base/project_folder_for_test.h): others are shared by ccache.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/project_folder.cc CONTENT [=[
#include "base/project_folder_for_test.h"
const char temper::kProjectFolder[] = "@CMAKE_SOURCE_DIR@";
const char temper::kBuildFolder[] = "@CMAKE_BINARY_DIR@";
]=] @ONLY)
add_library(temper_project_folder STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/project_folder.cc)
target_include_directories(temper_project_folder PRIVATE ${CMAKE_SOURCE_DIR}/src)

function(temper_target_name folder out)
  string(REPLACE "/" "_" name "temper_${folder}")
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# temper_own_sources(out folder pattern): files of src/<folder> whose names match, without those of layers within it.
function(temper_own_sources out folder pattern)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/${pattern})
  foreach(layer IN LISTS TEMPER_LAYERS)
    if(layer MATCHES "^${folder}/")
      list(FILTER sources EXCLUDE REGEX "/src/${layer}/")
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# temper_layer(folder DEPS layers... LIBS packages... EXCLUDE regex ONLY regex): the library temper_<folder> of
# src/<folder>, without the sources that EXCLUDE matches; ONLY: just the sources that it matches.
function(temper_layer folder)
  cmake_parse_arguments(ARG "" "EXCLUDE;ONLY" "DEPS;LIBS" ${ARGN})
  set(TEMPER_LAYERS ${TEMPER_LAYERS} ${folder} CACHE INTERNAL "")
  temper_own_sources(sources ${folder} *.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|_fuzz\\.cc$|/main\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  if(ARG_ONLY)
    list(FILTER sources INCLUDE REGEX "${ARG_ONLY}")
  endif()
  temper_target_name(${folder} target)
  if(sources)
    temper_together(compiled ${target} ${sources})
    add_library(${target} STATIC ${compiled})
    target_precompile_headers(${target} REUSE_FROM temper_headers)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_SOURCE_DIR}/src)
  if(TEMPER_FUZZ AND sources)
    temper_fuzzed(${folder} ${target})
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    temper_target_name(${dep} dep_target)
    target_link_libraries(${target} ${scope} ${dep_target})
  endforeach()
  target_link_libraries(${target} ${scope} ${ARG_LIBS})
  temper_instruction_sets("${sources}")
endfunction()

# One test binary per layer (<layer>_tests) from its *_test.cc, and one per folder of tests/ (scenarios).
function(temper_tests)
  temper_precompiled(temper_test_headers <gtest/gtest.h>)
  target_link_libraries(temper_test_headers PRIVATE GTest::gtest)
  temper_test_options(temper_test_headers)
  foreach(folder IN LISTS TEMPER_LAYERS)
    if(folder STREQUAL "backend/gpu")
      continue()
    endif()
    temper_own_sources(sources ${folder} *_test.cc)
    if(folder STREQUAL "backend/cpu")
      file(GLOB emulator CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/emulator/*.cc)
      temper_instruction_sets("${emulator}")
      list(APPEND sources ${emulator})
    endif()
    temper_target_name(${folder} target)
    temper_test_binary(${target}_tests "${sources}" ${target})
  endforeach()
  # On the emulator, or on a GPU if there is a compiler for it.
  set(gpu temper_backend_gpu_emulated)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*_test.cc)
  if(TEMPER_GPU)
    set(gpu temper_backend_gpu)
    list(FILTER sources EXCLUDE REGEX "/emulator/")
  endif()
  if(TARGET ${gpu})
    temper_test_binary(temper_backend_gpu_tests "${sources}" ${gpu})
    target_link_libraries(temper_backend_gpu_tests PRIVATE temper_backend_cpu)  # the twins
    # Miniature vendors' libraries, for code that calls them.
    foreach(library IN ITEMS nvml:nvidia-ml:1 hipblaslt:hipblaslt:0 cudnn:test_cudnn:9 cuda_driver:cuda:1)
      string(REGEX MATCH "^(.*):(.*):(.*)$" named ${library})
      set(target temper_test_${CMAKE_MATCH_1})
      set(folder test_${CMAKE_MATCH_1})
      add_library(${target} SHARED ${CMAKE_SOURCE_DIR}/tests/device/${CMAKE_MATCH_1}/${CMAKE_MATCH_1}.cc)
      target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
      set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder}
                            OUTPUT_NAME ${CMAKE_MATCH_2} SUFFIX .so.${CMAKE_MATCH_3})
      add_dependencies(temper_backend_gpu_tests ${target})
    endforeach()
  endif()
  # The machine that runs kernels from their PTX (tests/device/cuda).
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/device/cuda/ptx_*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(temper_ptx_machine STATIC ${sources})  # one by one: its files name instructions alike
  target_link_libraries(temper_ptx_machine PUBLIC temper_base)
  target_include_directories(temper_ptx_machine PUBLIC ${CMAKE_SOURCE_DIR}/tests/device/cuda)
  temper_with_headers(temper_ptx_machine)
  temper_test_binary(temper_ptx_tests "${tests}" temper_ptx_machine)
  # Replaces a vendor's library in scenarios on devices: ranks exchange bytes through shared memory.
  set(nccl ${CMAKE_BINARY_DIR}/test_nccl)
  add_library(temper_test_nccl SHARED ${CMAKE_SOURCE_DIR}/tests/collectives/nccl/nccl.cc)
  target_include_directories(temper_test_nccl PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(temper_test_nccl PRIVATE rt pthread)
  set_target_properties(temper_test_nccl PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${nccl} OUTPUT_NAME nccl SUFFIX .so.2)
  file(GLOB scenarios CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*)
  foreach(scenario IN LISTS scenarios)
    if(IS_DIRECTORY ${scenario})
      file(GLOB sources CONFIGURE_DEPENDS ${scenario}/*.cc)
      get_filename_component(name ${scenario} NAME)
      # Sources that know nothing of the backend are compiled once, also for the programs of temper_ptx_programs.
      set(alike "")
      if(name STREQUAL "conformance")
        set(alike ${sources})
        list(FILTER alike EXCLUDE REGEX "/op_case\\.cc$")
      endif()
      if(alike)
        temper_test_objects(temper_${name}_cases "${alike}" temper_cli)
        list(REMOVE_ITEM sources ${alike})
      endif()
      temper_test_binary(scenario_${name} "${sources}" temper_cli)
      if(alike)
        target_link_libraries(scenario_${name} PRIVATE temper_${name}_cases)
      endif()
      if(name MATCHES "^(conformance|equivalence)$" AND TARGET temper_backend_gpu_emulated)
        target_link_libraries(scenario_${name} PRIVATE temper_backend_gpu_emulated)
        add_dependencies(scenario_${name} temper_test_cudnn)
      endif()
      if(name MATCHES "^(collectives|device|equivalence)$")
        # dlopen searches there first, then in the system's folders.
        set_target_properties(scenario_${name} PROPERTIES BUILD_RPATH ${nccl})
        add_dependencies(scenario_${name} temper_test_nccl)
      endif()
    endif()
  endforeach()
endfunction()

# Tests spend their time in the libraries; their own code only needs to compile fast. With -Og g++ takes two thirds of the
# time that -O1 takes, and tests run as fast; with -O0 they take up to 1.5 times as long, as the linker keeps one copy of a
# template's function, often theirs.
function(temper_test_options target)
  if(NOT TEMPER_SANITIZE)
    # Compiled together, g++ 12 takes members of a StepSpec for uninitialised that have initialisers.
    target_compile_options(${target} PRIVATE $<IF:$<CXX_COMPILER_ID:GNU>,-Og,-O1> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  else()
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# temper_compiled_as_test(name library): how the target's sources are compiled.
function(temper_compiled_as_test name library)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${library} GTest::gtest)
  temper_test_options(${name})
  target_precompile_headers(${name} REUSE_FROM temper_test_headers)
  if(TEMPER_SANITIZE)
    # For tests that would replace malloc, or poison memory.
    target_compile_definitions(${name} PRIVATE TEMPER_SANITIZED)
    if(TEMPER_SANITIZE MATCHES "address")
      target_compile_definitions(${name} PRIVATE TEMPER_ADDRESS_SANITIZED)
    endif()
  endif()
endfunction()

# temper_test_objects(name sources libraries): objects of several test binaries, which link them by `name`.
function(temper_test_objects name sources library)
  temper_together(compiled ${name} ${sources})
  add_library(${name} OBJECT ${compiled})
  temper_compiled_as_test(${name} "${library}")
endfunction()

# temper_test_binary(name sources libraries [prefix [filter]]): `prefix` distinguishes its tests from others of the same
# names, `filter` selects those that ctest runs.
function(temper_test_binary name sources library)
  if(NOT sources)
    return()
  endif()
  temper_together(compiled ${name} ${sources})
  add_executable(${name} ${compiled})
  temper_compiled_as_test(${name} "${library}")
  target_link_libraries(${name} PRIVATE temper_project_folder GTest::gtest_main)
  # Another build's tests may run at the same time and would use the same files in /tmp.
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/test_files)
  temper_test_suites(${name} "${ARGV3}" "${ARGV4}")
endfunction()

# temper_test_suites(name prefix filter [VARIABLE=VALUE...]): a test of ctest for each suite of a test binary
# (cmake/list_suites.cmake).
function(temper_test_suites name prefix filter)
  set(list ${CMAKE_BINARY_DIR}/test_suites/${prefix}${name})
  set(environment "TEST_TMPDIR=${CMAKE_BINARY_DIR}/test_files/")
  foreach(variable IN LISTS ARGN)
    string(APPEND environment "|${variable}")
  endforeach()
  add_custom_command(
    TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D OUT=${list}.cmake -D "PREFIX=${prefix}"
            -D "FILTER=${filter}" -D "ENVIRONMENT=${environment}" -P ${CMAKE_SOURCE_DIR}/cmake/list_suites.cmake
    BYPRODUCTS ${list}.cmake
    VERBATIM)
  file(WRITE ${list}_include.cmake "if(EXISTS \"${list}.cmake\")\n  include(\"${list}.cmake\")\nelse()\n"
       "  add_test(${prefix}${name}_NOT_BUILT ${name}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${list}_include.cmake)
endfunction()
