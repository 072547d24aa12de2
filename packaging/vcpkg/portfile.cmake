# SPDX-License-Identifier: Apache-2.0
# Builds the clone that it lies in. In a registry vcpkg_from_github() stands here instead.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

# Programs of any build type link to it, as it is C.
set(VCPKG_BUILD_TYPE release)
vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -Dbench=disabled -Dcuda=disabled -Dexamples=disabled -Dstatic_runtime=false -Dtests=disabled -Dtools=disabled)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_cmake_config_fixup(PACKAGE_NAME zero CONFIG_PATH lib/cmake/zero)
# It lies one folder less deep now.
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/zero/zero-config.cmake"
  "CMAKE_CURRENT_LIST_DIR}/../../.." "CMAKE_CURRENT_LIST_DIR}/../..")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
# Headers of nlohmann-json and xxHash become part of the library.
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE"
  "${SOURCE_PATH}/subprojects/packagefiles/nlohmann_json/LICENSE"
  "${SOURCE_PATH}/subprojects/packagefiles/xxhash/LICENSE")
