# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` gives: the shared library, the headers, the program, a CMake package with the target
# nearlight::nearlight, and a pkg-config file. The tree can be moved. Nothing of the build reaches a user: no
# language level, no flag, no folder of this machine.
include(CMakePackageConfigHelpers)

set(nearlight_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/nearlight")

install(TARGETS nearlight_shared EXPORT nearlight-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET nearlight_nccl)
  # To be preloaded by its path; nobody links to it.
  install(TARGETS nearlight_nccl nearlight_nccl_audit LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(NEARLIGHT_PROGRAM)
  install(TARGETS nearlight_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
# For pip (pyproject.toml): the library alone, beside the package's modules. A wheel has no symbolic links.
install(FILES "$<TARGET_FILE:nearlight_shared>" DESTINATION nearlight RENAME libnearlight.so COMPONENT python EXCLUDE_FROM_ALL)
install(FILES
    include/nearlight/nearlight.h include/nearlight/nearlight.hpp include/nearlight/version.h
    include/nearlight/device.h include/nearlight/device.cuh include/nearlight/device_host.hpp include/nearlight/device_memory.hpp
    include/nearlight/device_nccl.cuh
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/nearlight")
# What the device API is made of.
install(DIRECTORY include/nearlight/detail DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/nearlight")

install(EXPORT nearlight-targets NAMESPACE nearlight:: DESTINATION "${nearlight_package_dir}")
# Below 1.0 a new minor number may change everything.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(nearlight_compatibility SameMinorVersion)
else()
  set(nearlight_compatibility SameMajorVersion)
endif()
write_basic_package_version_file("${PROJECT_BINARY_DIR}/nearlight-config-version.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY ${nearlight_compatibility})
file(WRITE "${PROJECT_BINARY_DIR}/nearlight-config.cmake"
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/nearlight-targets.cmake\")\n")
install(FILES "${PROJECT_BINARY_DIR}/nearlight-config.cmake" "${PROJECT_BINARY_DIR}/nearlight-config-version.cmake"
  DESTINATION "${nearlight_package_dir}")

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(nearlight_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  # From the file's own place, so that the tree can be moved.
  file(RELATIVE_PATH nearlight_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  set(nearlight_pc_prefix "\${pcfiledir}/${nearlight_pc_up}")
endif()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/nearlight.pc" @ONLY CONTENT [[
prefix=@nearlight_pc_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: nearlight
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lnearlight
]])
install(FILES "${PROJECT_BINARY_DIR}/nearlight.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
