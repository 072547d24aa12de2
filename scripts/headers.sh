# SPDX-License-Identifier: Apache-2.0
# Sourced by what compiles for other machines.

# headers_in FOLDER: the headers that are compiled in, away from those of this machine's C library, as packages
# for pkg_config_libdir.
headers_in() {
  local headers=$1 package name folder
  rm -rf "$headers"
  mkdir -p "$headers"
  for package in nlohmann_json:nlohmann libxxhash:xxhash.h CLI11:CLI; do
    name=${package%:*}
    folder=$(PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 pkg-config --cflags-only-I "$name" | sed 's/^-I//; s/ .*//')
    cp -rL "$folder/${package#*:}" "$headers"
    printf 'Name: %s\nDescription: its headers\nVersion: %s\nCflags: -isystem%s\n' "$name" \
      "$(pkg-config --modversion "$name")" "$headers" >"$headers/$name.pc"
  done
}
