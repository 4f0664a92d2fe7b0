# The test Embed: what `cmake --install` makes is enough to build examples/embed, elsewhere, and it trains and answers.
#   cmake -D BUILD=FOLDER -D SOURCE=FOLDER -P embed_test.cmake
set(place ${BUILD}/embed_test)
file(REMOVE_RECURSE ${place})
function(must)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${place} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  set(out "${out}" PARENT_SCOPE)
  if(NOT code EQUAL 0 OR NOT err STREQUAL "")
    message(FATAL_ERROR "${ARGN} ended with ${code}:\n${out}\n${err}")
  endif()
endfunction()
file(COPY ${SOURCE}/examples/embed/ DESTINATION ${place}/source)
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${place}/prefix)
# A prefix may move.
file(RENAME ${place}/prefix ${place}/moved)
must(${CMAKE_COMMAND} -S source -B build -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${COMPILER}
     -D CMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror -D CMAKE_PREFIX_PATH=${place}/moved)
must(${CMAKE_COMMAND} --build build)
must(build/embed ${SOURCE}/examples/plain/model ${SOURCE}/examples/plain/pirate_train.jsonl out)
if(NOT out MATCHES "step 1 of 8: loss [0-9.]+, .*step 8 of 8: loss [0-9.]+, 0 s left\n[A-Z][a-z ]")
  message(FATAL_ERROR "the example did not train, or did not answer:\n${out}")
endif()
