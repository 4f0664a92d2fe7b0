# libFuzzer targets: each *_fuzz.cc under src/ becomes fuzz_<name>, linked to the library of its layer; target `fuzz`
# builds them all. They need clang, and are built beside the tests of a sanitizer build, from the same objects: fuzzed
# code is compiled with coverage (temper_fuzzed), everything with the sanitizers. Fuzzed code and targets are optimised
# (-O2): 11 to 18 % more inputs a second than with the -O1 of other sanitized code.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "libFuzzer comes with clang: configure with -DCMAKE_CXX_COMPILER=clang++-14")
endif()

# Layers that compute read no untrusted bytes; coverage would only slow them down.
function(temper_fuzzed folder target)
  if(NOT folder MATCHES "^(backend/cpu|runtime|infer|cli)$")
    target_compile_options(${target} PRIVATE -O2 -fsanitize=fuzzer-no-link)
  else()
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # temper_headers are compiled with other flags
  endif()
endfunction()

function(temper_fuzz_targets)
  add_custom_target(fuzz)
  foreach(folder IN LISTS TEMPER_LAYERS)
    temper_own_sources(sources ${folder} *_fuzz.cc)
    temper_target_name(${folder} library)
    foreach(source IN LISTS sources)
      get_filename_component(name ${source} NAME_WE)
      string(REGEX REPLACE "_fuzz$" "" name ${name})
      add_executable(fuzz_${name} ${source})
      target_link_libraries(fuzz_${name} PRIVATE ${library})
      target_compile_options(fuzz_${name} PRIVATE -O2)
      target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzz fuzz_${name})
    endforeach()
  endforeach()
endfunction()
