# Packages of Debian 12 (scripts/setup.sh installs them). Each becomes one target with a plain name.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
# For ranks on several machines; one machine does not need it.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX QUIET)
find_package(PkgConfig REQUIRED)
foreach(package IN ITEMS libxxhash:xxhash libpcre2-8:pcre2 libutf8proc:utf8proc
                    sentencepiece:sentencepiece zlib:zlib libzstd:zstd
                    snappy:snappy liblz4:lz4 libbrotlidec:brotli)
  string(REPLACE ":" ";" pair ${package})
  list(GET pair 0 module)
  list(GET pair 1 name)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
  add_library(${name} ALIAS PkgConfig::${name})
  set(TEMPER_MODULE_${name} ${module})  # of pkg-config
endforeach()
# For lines typed at a terminal, in the program alone: the library needs none.
pkg_check_modules(libedit QUIET IMPORTED_TARGET libedit)
if(libedit_FOUND)
  add_library(libedit ALIAS PkgConfig::libedit)
endif()
if(TEMPER_TESTS)
  find_package(GTest REQUIRED)
endif()
