#!/bin/bash
# Installs the Debian 12 packages that Islands needs, and nothing when they are there.
#
#   deploy/install-packages.sh [build] [test] [engines] [machines] [fuzz] [soak] [draw]      default: build test
#
# This is the only list of them, but for the Python package of dashboards/requirements.txt and the npm packages of
# dashboards/draw/package.json. Starts no service: of
# `prometheus` only the two programs are unpacked, into build/tools; so is the kernel that virtual machines boot.
set -euo pipefail
cd "$(dirname "$0")/.."

build=(
  g++ cmake ninja-build make pkg-config git ccache python3
  libabsl-dev libspdlog-dev libfmt-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev
  libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc
  libhwloc-dev libnuma-dev libzmq3-dev cppzmq-dev liburing-dev
  prometheus-cpp-dev zlib1g-dev libcurl4-openssl-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3-yaml python3-matplotlib  # of `islands sweep`, `report`, `advise`
  python3-grpcio python3-protobuf  # of `islands client`, `table`, `history`
  dpkg-dev file  # of `make deb`
)
test=(
  python3-pytest python3-pytest-xdist clang-format-16 procps spin openssl
  mypy python3-typeshed  # types of the Python here, and of PyYAML
  python3-venv  # for what generates the dashboards
  liblmdb-dev librocksdb-dev libdb-dev libwiredtiger-dev  # the engines that experiments/peers measures beside islands
  libsqlite3-dev  # and `make bench-engines` does
)
engines=(postgresql libpq-dev mariadb-server-core libmariadb-dev libsqlite3-dev)  # servers of `make bench-engines`
machines=(qemu-system-x86)  # virtual machines for deploy/machines
fuzz=(clang-16 libclang-rt-16-dev)
soak=(cargo-web)  # builds the crate below; Debian's `cargo` is too old for it
adya_version=0.1.0
draw=(chromium fonts-inter)  # draws dashboards; Grafana's letters

say() { echo "install-packages: $*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "need root to run '$*': run this script as root, or install sudo"
    exit 1
  fi
}

apt_updated=no
apt_update() {
  [ "$apt_updated" = yes ] && return
  say "apt-get update"
  as_root apt-get update -qq
  apt_updated=yes
}

is_installed() {
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_missing() {
  local missing=() package
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  if [ ${#missing[@]} = 0 ]; then return; fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  apt_update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Servers that `peers` starts itself: none may be started as a service, now or when the machine starts again. So policy-rc.d
# says no meanwhile, as in a container, and PostgreSQL's package makes no cluster; MariaDB's core package has no service.
install_engines() {
  local policy=/usr/sbin/policy-rc.d clusters=/etc/postgresql-common/createcluster.d/islands-peers.conf made=() package
  for package in "${engines[@]}"; do is_installed "$package" || made=(yes); done
  if [ ${#made[@]} = 0 ]; then return; fi
  made=()
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    made+=("$policy")
  fi
  if ! is_installed postgresql-common; then
    as_root mkdir -p "${clusters%/*}"
    echo 'create_main_cluster = false' | as_root tee "$clusters" >/dev/null
    made+=("$clusters")
  fi
  if ! (if [ ${#made[@]} != 0 ]; then trap 'as_root rm -f "${made[@]}"' EXIT; fi; install_missing "${engines[@]}"); then
    say "not all engines: make bench-engines leaves out those that are missing"
  fi
}

# For the tests: promtool checks metrics and rules, prometheus reads real islands. The package would start a server, so
# it is only unpacked.
unpack_prometheus() {
  if command -v promtool >/dev/null && command -v prometheus >/dev/null; then return; fi
  if [ -x build/tools/promtool ] && [ -x build/tools/prometheus ]; then return; fi
  say "unpacking prometheus and promtool into build/tools"
  apt_update || true
  local scratch
  scratch=$(mktemp -d)
  chmod 755 "$scratch"
  trap "rm -rf '$scratch'" EXIT
  if ! (cd "$scratch" && apt-get download -qq -o APT::Sandbox::User=root prometheus &&
        dpkg-deb -x prometheus_*.deb .); then
    say "no prometheus and promtool: the tests that need them will be skipped"
    return
  fi
  mkdir -p build/tools
  cp "$scratch/usr/bin/promtool" "$scratch/usr/bin/prometheus" build/tools/
}

# For virtual machines: QEMU, a kernel with the drivers of a console port, busybox. Installing a kernel would make it this
# machine's, so it is only unpacked.
get_machines() {
  local folder=build/tools/machines drivers=kernel/drivers kernel scratch module
  if [ "$(dpkg --print-architecture)" != amd64 ]; then
    say "virtual machines are amd64, this is not: their tests will be skipped"
    return
  fi
  if ! install_missing "${machines[@]}"; then
    say "no ${machines[*]}: the tests in virtual machines will be skipped"
    return
  fi
  if [ -r "$folder/vmlinuz" ]; then return; fi
  say "unpacking a kernel and busybox into $folder"
  apt_update || true
  scratch=$(mktemp -d)
  kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1)
  if [ -z "$kernel" ] || ! (cd "$scratch" && chmod 755 . &&
      apt-get download -qq -o APT::Sandbox::User=root "$kernel" busybox-static &&
      for package in *.deb; do dpkg-deb -x "$package" .; done); then
    say "no kernel package: the tests in virtual machines will be skipped"
    rm -rf "$scratch"
    return
  fi
  mkdir -p "$folder/modules"
  for module in virtio/virtio{_ring,,_pci_modern_dev,_pci_legacy_dev,_pci} char/virtio_console; do
    cp "$scratch"/lib/modules/*/$drivers/$module.ko "$folder/modules/"
  done
  cp "$scratch/bin/busybox" "$folder/"
  cp "$scratch"/boot/vmlinuz-* "$folder/vmlinuz"  # last: its being there says that all is
  rm -rf "$scratch"
}

# What writes the dashboards' JSON, and the test that compares it with its source, need Grafana's package from PyPI.
install_dashboards_sdk() {
  local wanted=dashboards/requirements.txt venv=build/tools/venv
  if cmp -s "$wanted" "$venv/requirements.txt"; then return; fi
  say "installing $(grep -v '^#' "$wanted") into $venv"
  if ! (/usr/bin/python3 -m venv --clear "$venv" &&
        "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 -r "$wanted"); then
    say "no Grafana SDK: the test that compares the dashboards with their source will be skipped"
    return
  fi
  cp "$wanted" "$venv/requirements.txt"
}

# A checker of histories that is not ours (deploy/e2e/adya.py), without its drivers of databases. Where there is a cargo,
# Debian's or another, it is that one's to build it.
install_adya() {
  local folder=build/tools
  if [ "$("$folder/bin/adya" --version 2>/dev/null)" = "adya $adya_version" ]; then return; fi
  if ! command -v cargo >/dev/null && ! install_missing "${soak[@]}"; then
    say "no ${soak[*]}: make soak will miss it"
    return
  fi
  say "building adya $adya_version into $folder/bin"
  if ! cargo install --quiet --locked --force --no-default-features --version "$adya_version" \
      --root "$folder" adya; then
    say "no adya: make soak will miss it"
  fi
}

# Grafana's components and what draws the dashboards with them, from npm. Where there is a Node, Debian's or another, it is
# that one's to run them; none of the packages may run a program of its own while it is installed.
install_draw() {
  local folder=build/tools/draw
  install_missing "${draw[@]}"
  if ! command -v npm >/dev/null; then install_missing nodejs npm; fi
  if cmp -s dashboards/draw/package-lock.json "$folder/installed.json"; then return; fi
  say "installing Grafana's components into $folder"
  mkdir -p "$folder"
  cp dashboards/draw/package.json dashboards/draw/package-lock.json "$folder/"
  npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent
  cp dashboards/draw/package-lock.json "$folder/installed.json"  # last: its being there says that all is
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  say "this is no Debian system; install yourself: ${build[*]} ${test[*]}"
  exit 0
fi
[ $# -gt 0 ] || set -- build test
for group in "$@"; do
  case $group in
    build) install_missing "${build[@]}" ;;
    test)
      install_missing "${test[@]}"
      unpack_prometheus
      install_dashboards_sdk
      ;;
    engines) install_engines ;;
    machines) get_machines ;;
    fuzz) install_missing "${fuzz[@]}" ;;
    soak) install_adya ;;
    draw) install_draw ;;
    *)
      say "unknown group '$group'; there are build, test, engines, machines, fuzz, soak and draw"
      exit 2
      ;;
  esac
done
