# find_package(Reprise) for other projects, and the program.
include(CMakePackageConfigHelpers)

install(TARGETS reprise EXPORT RepriseTargets FILE_SET HEADERS)
if(PROJECT_IS_TOP_LEVEL)
  install(TARGETS reprise_program)
endif()
install(EXPORT RepriseTargets NAMESPACE reprise:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
configure_package_config_file(cmake/RepriseConfig.cmake.in RepriseConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
write_basic_package_version_file(RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/RepriseConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
