# What `cmake --install` and the .deb hold: the program, its manual page and completions, which it prints itself, README
# and licence, and what README names: the documentation and the examples.
include(GNUInstallDirs)
# Installing and packing need the program, not the tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

function(temper_install)
  install(TARGETS temper RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/install_generated.cmake.in ${CMAKE_BINARY_DIR}/install_generated.cmake @ONLY)
  install(CODE "set(temper \"$<TARGET_FILE:temper>\")")
  install(SCRIPT ${CMAKE_BINARY_DIR}/install_generated.cmake)
endfunction()

# `cpack` in the build folder makes temper_VERSION_amd64.deb. Its dependencies are those of the linked libraries.
function(temper_package)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME temper)
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_PACKAGE_CONTACT "Temper developers <temper@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tunes large language models on the hardware you have")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
      "Trains LoRA adapters or whole models of the Hugging Face format on CPUs,\nin one process or many, and plans memory and speed of a run before it\nstarts.")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  include(CPack)
endfunction()
