# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that compile for other machines.

# headers_in FOLDER: provides the compiled-in headers, in the versions that archives contain, as packages for
# pkg_config_libdir.
headers_in() {
  local headers=$1 package folder
  rm -rf "$headers"
  scripts/bundle-headers "$headers"
  for package in nlohmann_json:json-*/include libxxhash:xxHash-* CLI11:CLI11-*/include; do
    folder=$(echo "$headers"/${package#*:})
    printf 'Name: %s\nDescription: its headers\nVersion: %s\nCflags: -isystem%s\n' "${package%:*}" \
      "$(basename "${folder%/include}" | sed 's/.*-//')" "$folder" >"$headers/${package%:*}.pc"
  done
}
