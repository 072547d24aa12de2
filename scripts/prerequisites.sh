# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts/test and scripts/demo, with the names of what they need. Installs missing packages if this is
# allowed, and otherwise reports what to install. Sets PYTHON.

# Prints the Debian package that provides a need, and how to check for it.
need_package() {
  case $1 in
    c++) echo g++ ;;
    c) echo gcc ;;
    meson) echo meson ;;
    ninja) echo ninja-build ;;
    python3) echo python3 ;;
    pkg-config) echo pkg-config ;;
    nlohmann_json) echo nlohmann-json3-dev ;;
    libxxhash) echo libxxhash-dev ;;
    CLI11) echo libcli11-dev ;;
    gtest) echo libgtest-dev ;;
    benchmark) echo libbenchmark-dev ;;
    gfortran) echo gfortran ;;
    mpi) echo libopenmpi-dev openmpi-bin ;;
    iproute2) echo iproute2 ;;
    dlib) echo libdlib-dev ;;
    aarch64) echo g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
  esac
}

need_is_there() {
  case $1 in
    c++) command -v ${CXX:-c++} ;; # may be several words, such as ccache g++
    c) command -v ${CC:-cc} ;;
    dlib) [ -f /usr/include/dlib/dnn.h ] ;;
    mpi) command -v mpicc && command -v mpirun ;;
    iproute2) command -v tc || command -v /usr/sbin/tc ;;
    aarch64) command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64 ;;
    meson | ninja | python3 | pkg-config | gfortran) command -v "$1" ;;
    *) pkg-config --exists "$1" ;;
  esac >/dev/null 2>&1
}

missing_packages() {
  for need in "$@"; do
    need_is_there "$need" || need_package "$need"
  done
}

# Looks for missing packages, installs them if this is allowed, and looks again. After that, `packages` contains what
# is still missing.
install_missing() {
  packages=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$packages" ] || return 0
  as_root=
  if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
  if command -v apt-get >/dev/null && { [ -z "$as_root" ] || $as_root true 2>/dev/null; }; then
    echo "installing $packages"
    $as_root apt-get update -qq >/dev/null 2>&1 || echo "apt-get update failed: going on with its old lists"
    # shellcheck disable=SC2086  # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages \
      >/dev/null || true
    packages=$(missing_packages "$@" | tr '\n' ' ')
  fi
}

require() {
  install_missing "$@"
  [ -n "$packages" ] || return 0
  echo "Missing, under their Debian names: $packages" >&2
  exit 1
}

# Prefers a python3 with numpy, without which the numpy tests of the bindings are skipped.
choose_python() {
  for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c 'import numpy' 2>/dev/null && PYTHON=$candidate && return 0
  done
  : "${PYTHON:=python3}"
}
