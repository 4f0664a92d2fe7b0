# One program per bench/*.cc, named after it. CI does not run them: each answers one question about speed. If oneDNN is
# installed, gemm_bench compares with it.
find_package(dnnl QUIET)

# Programs that run little more than kernels need not wait for the rest to compile.
set(TEMPER_KERNEL_BENCHES attention_bench gemm_bench loss_bench save_bench)

function(temper_benches)
  set(CMAKE_UNITY_BUILD OFF)  # each is a program of one source
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.cc)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    if(name IN_LIST TEMPER_KERNEL_BENCHES)
      target_link_libraries(${name} PRIVATE temper_backend_cpu temper_checkpoint)
    elseif(name STREQUAL collectives)
      target_link_libraries(${name} PRIVATE temper_comm_mpi)
    elseif(name STREQUAL disk_stream)
      target_link_libraries(${name} PRIVATE temper_disk)
    else()
      target_link_libraries(${name} PRIVATE temper_cli)
    endif()
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE temper_project_folder)
    if(TARGET DNNL::dnnl AND name STREQUAL gemm_bench)
      target_link_libraries(${name} PRIVATE DNNL::dnnl)
      target_compile_definitions(${name} PRIVATE TEMPER_HAVE_DNNL)
    endif()
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  endforeach()
endfunction()
