# src/backend/gpu: kernels for GPUs, one source for several compilers.

# Languages belong to the top level of the project.
if(TEMPER_GPU STREQUAL "cuda")
  # A100, Hopper, and as PTX of 9.0 what comes later.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual CACHE STRING "GPUs to compile for")
  find_program(TEMPER_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${TEMPER_NVCC} CACHE FILEPATH "CUDA's compiler")
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # which CMake 3.25 does not know of nvcc
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
elseif(TEMPER_GPU)
  message(FATAL_ERROR "TEMPER_GPU is '${TEMPER_GPU}'; it may be 'cuda', or empty")
endif()

# The layer. Without TEMPER_GPU it is a stub that says so.
function(temper_gpu_layer)
  if(NOT TEMPER_GPU)
    temper_layer(backend/gpu DEPS base tensor graph device
                 EXCLUDE "/emulator/|/gpu/[a-z_]*\\.cc$|/hardware/(gpu|blas)_[a-z_]*\\.cc$")
    return()
  endif()
  temper_layer(backend/gpu DEPS base tensor graph device LIBS CUDA::cudart_static ${CMAKE_DL_LIBS}
               EXCLUDE "/emulator/|/no_gpu\\.cc$")
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/gpu/*.cu)
  target_sources(temper_backend_gpu PRIVATE ${kernels})
  # Contraction is off here, too: see CMakeLists.txt.
  target_compile_options(temper_backend_gpu PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-fmad=false;-Xcompiler=-ffp-contract=off>")
endfunction()

# temper_backend_gpu_emulated: the kernels on the SIMT emulator, compiled by the host's compiler, for tests. A *.cu
# belongs to another language of CMake's, so each gets a *.cc that includes it. Where kernels are built for a GPU, tests
# run them there instead.
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
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/emulator/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  foreach(kernel IN LISTS kernels)
    get_filename_component(name ${kernel} NAME_WE)
    set(wrapper ${CMAKE_BINARY_DIR}/emulated/${name}.cc)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"backend/gpu/${name}.cu\"\n")
    list(APPEND sources ${wrapper})
  endforeach()
  add_library(temper_backend_gpu_emulated STATIC ${sources})
  target_include_directories(temper_backend_gpu_emulated PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(temper_backend_gpu_emulated PUBLIC TEMPER_GPU_EMULATED)
  target_link_libraries(temper_backend_gpu_emulated PUBLIC temper_device PRIVATE Boost::context)
endfunction()
