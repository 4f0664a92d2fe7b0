# src/backend/gpu: kernels for GPUs, one source for several compilers.

include(${CMAKE_CURRENT_LIST_DIR}/cuda_architectures.cmake)

# Languages must be enabled at the top level of the project.
if(TEMPER_GPU STREQUAL "cuda")
  # A100, Hopper, and PTX of 9.0 for later GPUs.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual CACHE STRING "GPUs to compile for")
  find_program(TEMPER_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${TEMPER_NVCC} CACHE FILEPATH "CUDA's compiler")
  enable_language(CUDA)
  temper_with_hopper(architectures "${CMAKE_CUDA_ARCHITECTURES}" "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know this option of nvcc
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
elseif(TEMPER_GPU STREQUAL "hip")
  set(TEMPER_HIP_ARCHITECTURES gfx90a CACHE STRING "GPUs to compile for")
  find_program(TEMPER_HIPCC hipcc HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES bin REQUIRED)
  find_library(TEMPER_HIP_RUNTIME amdhip64 HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES lib REQUIRED)
  find_path(TEMPER_HIP_HEADERS hip/hip_runtime.h HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include REQUIRED)
elseif(TEMPER_GPU)
  message(FATAL_ERROR "TEMPER_GPU is '${TEMPER_GPU}'; it may be 'cuda', 'hip', or empty")
endif()

# Sources of backend/gpu/hardware/ that need a vendor's headers.
set(TEMPER_GPU_OWN "gpu_device|gpu_stream|blas_lt|hip_products|no_gpu")

# objects: calls a GPU's compiler directly for the sources. CMake 3.25's own HIP language does not find Debian's hipcc,
# and its CUDA language would have to be enabled in builds that need it for only one target.
function(temper_gpu_objects out compiler flags)
  set(objects)
  get_filename_component(folder ${compiler} NAME)
  set(launcher)
  if(folder STREQUAL "nvcc")
    set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})  # ccache, which supports it
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${folder}_objects)
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_BINARY_DIR}/${folder}_objects/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${launcher} ${compiler} ${flags} -std=c++20 -O2 -I${CMAKE_SOURCE_DIR}/src -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "Compiling ${name} with ${folder}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# In a build without TEMPER_GPU, if nvcc is found: temper_backend_gpu_cuda, the CUDA backend for one architecture, as
# machine code and as PTX, which temper_ptx_programs runs; temper_cuda, the program with it, which CI links. Targets
# link the whole library, so that its OpenGpu is found before the stub's.
function(temper_cuda_program)
  find_program(TEMPER_NVCC nvcc HINTS /usr/local/cuda/bin)
  find_library(TEMPER_CUDART cudart_static HINTS /usr/local/cuda/lib64)
  if(TEMPER_GPU OR NOT TEMPER_NVCC OR NOT TEMPER_CUDART)
    return()
  endif()
  get_filename_component(cuda ${TEMPER_NVCC} REALPATH)
  get_filename_component(cuda ${cuda}/../../include REALPATH)
  set(folder ${CMAKE_SOURCE_DIR}/src/backend/gpu)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  file(GLOB_RECURSE hosts CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER hosts EXCLUDE REGEX "_test\\.cc$|/emulator/|/(no_gpu|hip_products|hipblas_lt)\\.cc$")
  temper_gpu_objects(objects ${TEMPER_NVCC}
    "-gencode=arch=compute_90a,code=[sm_90a,compute_90a];--no-compress;-DTEMPER_SM90A;-Xptxas=--warning-as-error;--expt-relaxed-constexpr;-fmad=false;-Xcompiler=-ffp-contract=off" ${kernels})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(temper_backend_gpu_cuda STATIC EXCLUDE_FROM_ALL ${hosts} ${objects})
  target_precompile_headers(temper_backend_gpu_cuda REUSE_FROM temper_headers)
  target_include_directories(temper_backend_gpu_cuda SYSTEM PUBLIC ${cuda})
  target_link_libraries(temper_backend_gpu_cuda PUBLIC temper_device ${CMAKE_DL_LIBS})
  add_executable(temper_cuda EXCLUDE_FROM_ALL src/cli/main.cc)
  set_target_properties(temper_cuda PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(temper_cuda PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,temper_backend_gpu_cuda> temper_cli
                        ${TEMPER_CUDART} rt pthread)
endfunction()

# The layer. Without TEMPER_GPU it is a stub that reports this.
function(temper_gpu_layer)
  if(NOT TEMPER_GPU)
    temper_layer(backend/gpu DEPS base tensor graph device ONLY "/hardware/no_gpu\\.cc$")
    return()
  endif()
  if(TEMPER_GPU STREQUAL "hip")
    temper_layer(backend/gpu DEPS base tensor graph device LIBS ${TEMPER_HIP_RUNTIME} ${CMAKE_DL_LIBS}
                 EXCLUDE "/emulator/|/(no_gpu|blas_lt)\\.cc$")
    # hipcc compiles kernels only. The host's compiler reads HIP's headers for all else: clang 15, Debian's hipcc,
    # crashes on a std::map from strings in HIP's mode (inferCUDATargetForImplicitSpecialMember), which googletest has.
    target_compile_definitions(temper_backend_gpu PUBLIC __HIP_PLATFORM_AMD__)
    target_include_directories(temper_backend_gpu SYSTEM PUBLIC ${TEMPER_HIP_HEADERS})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*.cu)
    set(architectures ${TEMPER_HIP_ARCHITECTURES})
    list(TRANSFORM architectures PREPEND --offload-arch=)
    temper_gpu_objects(objects ${TEMPER_HIPCC}
      "-x;hip;${architectures};-Wall;-Wextra;-Wno-missing-field-initializers;-ffp-contract=off" ${sources})
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(temper_backend_gpu PRIVATE ${objects})
    return()
  endif()
  temper_layer(backend/gpu DEPS base tensor graph device LIBS CUDA::cudart_static ${CMAKE_DL_LIBS}
               EXCLUDE "/emulator/|/(no_gpu|hip_products|hipblas_lt)\\.cc$")
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*.cu)
  target_sources(temper_backend_gpu PRIVATE ${kernels})
  # Code for Hopper's own units is launched only if it was compiled.
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "90a(-real)?(;|$)")
    target_compile_definitions(temper_backend_gpu PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:TEMPER_SM90A>)
  endif()
  # Contraction is also off here: see CMakeLists.txt.
  target_compile_options(temper_backend_gpu PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills;--expt-relaxed-constexpr;-fmad=false;-Xcompiler=-ffp-contract=off>")
endfunction()

# temper_backend_gpu_emulated: the kernels on the SIMT emulator, compiled by the
# host's compiler, for tests. TEMPER_PTX_TESTS: temper_ptx_programs runs those of
# warps of 32. CMake treats a *.cu as another language, so each gets a *.cc that
# includes it. If kernels are built for a GPU, tests run them there instead.
function(temper_gpu_emulated)
  if(TEMPER_GPU)
    return()
  endif()
  find_package(Boost 1.74 QUIET COMPONENTS context)
  if(NOT Boost_CONTEXT_FOUND)
    message(STATUS "Boost.Context was not found: the tests of GPU kernels are not built")
    return()
  endif()
  set(folder ${CMAKE_SOURCE_DIR}/src/backend/gpu)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|/(${TEMPER_GPU_OWN})\\.cc$")
  foreach(kernel IN LISTS kernels)
    get_filename_component(name ${kernel} NAME_WE)
    set(wrapper ${CMAKE_BINARY_DIR}/emulated/${name}.cc)
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${kernel})
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${path}\"\n")
    list(APPEND sources ${wrapper})
  endforeach()
  add_library(temper_backend_gpu_emulated STATIC ${sources})  # one by one: kernels name their parts alike
  target_include_directories(temper_backend_gpu_emulated PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(temper_backend_gpu_emulated PUBLIC TEMPER_GPU_EMULATED)
  target_link_libraries(temper_backend_gpu_emulated PUBLIC temper_device PRIVATE Boost::context)
  temper_with_headers(temper_backend_gpu_emulated)
  if(TARGET temper_backend_gpu_cuda AND NOT TEMPER_SANITIZE)
    target_compile_definitions(temper_backend_gpu_emulated PUBLIC TEMPER_PTX_TESTS)
  endif()
endfunction()

# If there is temper_backend_gpu_cuda: programs that run its kernels' PTX on a GPU that tests/device/cuda simulates:
# temper_ptx, and, from the same sources as the tests that run on a real GPU, tests named ptx.*.
function(temper_ptx_programs)
  set(folder ${CMAKE_SOURCE_DIR}/tests/device/cuda)
  if(NOT TARGET temper_backend_gpu_cuda OR TEMPER_SANITIZE)
    return()
  endif()
  # The runtime, instead of cudart.
  file(GLOB runtime CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER runtime EXCLUDE REGEX "_test\\.cc$|/ptx_[a-z_]*\\.cc$")
  get_target_property(cuda temper_backend_gpu_cuda INTERFACE_SYSTEM_INCLUDE_DIRECTORIES)
  add_library(temper_test_cudart STATIC ${runtime})
  target_link_libraries(temper_test_cudart PUBLIC temper_ptx_machine fmt::fmt pthread)
  target_include_directories(temper_test_cudart SYSTEM PUBLIC ${cuda})
  temper_with_headers(temper_test_cudart)
  temper_test_binary(temper_cudart_tests ${folder}/cuda_runtime_test.cc temper_test_cudart)
  # Loaded instead of cuBLASLt.
  add_library(temper_test_cublaslt SHARED ${CMAKE_SOURCE_DIR}/tests/device/cublaslt/cublaslt.cc)
  target_include_directories(temper_test_cublaslt PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(temper_test_cublaslt SYSTEM PRIVATE ${cuda})
  target_compile_options(temper_test_cublaslt PRIVATE -O3)
  file(STRINGS ${cuda}/cublas_api.h version REGEX "define CUBLAS_VER_MAJOR")
  string(REGEX MATCH "[0-9]+" version "${version}")
  set_target_properties(temper_test_cublaslt PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test_cublaslt
                        OUTPUT_NAME cublasLt SUFFIX .so.${version})

  set(gpu $<LINK_LIBRARY:WHOLE_ARCHIVE,temper_backend_gpu_cuda> temper_cli temper_test_cudart)
  add_executable(temper_ptx src/cli/main.cc)
  target_link_libraries(temper_ptx PRIVATE ${gpu})
  set_target_properties(temper_ptx PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  file(GLOB_RECURSE backend CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*_test.cc)
  list(FILTER backend EXCLUDE REGEX "/emulator/")
  # All are compiled, as for a GPU; the excluded ones run no kernel.
  temper_test_binary(ptx_backend "${backend}" "${gpu}" ptx. -GpuCudnn*:GpuInventory*:MemoryHolders*)
  target_compile_definitions(ptx_backend PRIVATE TEMPER_PTX_TESTS)
  # Attention by mma.sync: of a GPU without Hopper's units.
  temper_test_suites(ptx_backend ptx8. GpuAttention*InBf16 TEMPER_TEST_GPU=8.0)
  temper_test_binary(ptx_conformance ${CMAKE_SOURCE_DIR}/tests/conformance/op_case.cc "temper_conformance_cases;${gpu}" ptx.)
  temper_test_binary(ptx_equivalence ${CMAKE_SOURCE_DIR}/tests/equivalence/gpu_test.cc "${gpu}" ptx.)
  temper_test_binary(ptx_parity "$<TARGET_OBJECTS:scenario_parity>" "${gpu}" ptx. -*ParityOfCurves*)
  temper_test_binary(ptx_program ${folder}/program_test.cc temper_checkpoint ptx.)
  target_compile_definitions(ptx_program PRIVATE TEMPER_PROGRAM="$<TARGET_FILE:temper_ptx>")
  add_dependencies(ptx_program temper_ptx)
  # Steps of models of a realistic size for GPUs; checks their launches.
  add_executable(ptx_step ${CMAKE_SOURCE_DIR}/bench/gpu_step.cc)
  target_link_libraries(ptx_step PRIVATE ${gpu})
  # Registers and local memory of the kernels in machine code.
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND)
    add_test(NAME ptx.registers COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_registers.py
             ${CMAKE_BINARY_DIR}/nvcc_objects ${CMAKE_SOURCE_DIR}/tools/registers.txt ${TEMPER_NVCC})
  endif()
  # The lines of gpu_check.sh, on cards of 80 and 24 GiB.
  add_test(NAME ptx.gpu_check COMMAND ${CMAKE_SOURCE_DIR}/scripts/gpu_check.sh --rehearse WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  file(RELATIVE_PATH build ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(ptx.gpu_check PROPERTIES TIMEOUT 600 ENVIRONMENT
                       "GPU_CHECK_BUILD=${build};GPU_CHECK_ONLY=lora_8b full_1.5b lora_8b_accumulated lora_8b_nf4 lora_8b_without_graphs;GPU_CHECK_LOGS=${CMAKE_BINARY_DIR}/ptx_gpu_check")
  foreach(program IN ITEMS temper_ptx ptx_backend ptx_conformance ptx_equivalence ptx_parity ptx_step)
    set_target_properties(${program} PROPERTIES
                          BUILD_RPATH "${CMAKE_BINARY_DIR}/test_cublaslt;${CMAKE_BINARY_DIR}/test_nccl")
    add_dependencies(${program} temper_test_cublaslt temper_test_nccl)
  endforeach()
endfunction()
