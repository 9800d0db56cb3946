#!/bin/sh
# Sets up this checkout: the Debian or Ubuntu packages that are missing, and a Python environment in .venv.
#
#   ./setup.sh         what compiling models and running them on this machine takes
#   ./setup.sh dev     also what linting and testing take: cross compiler, simulator, analysers, test packages
#   ./setup.sh venv    the Python environment of `dev`, no packages
#
# What is there already is left alone, so a second run takes no time. Root needs no sudo. Environment:
#   PYTHON  the interpreter to build the environment with (default: python3)
#   VENV    where the environment is (default: .venv)
set -eu
cd "$(dirname "$0")"

kind=${1:-run}
case $kind in
  run) locks='requirements/run.lock requirements/build.lock' ;;
  dev | venv) locks=requirements/dev.lock ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

# ---- packages ----------------------------------------------------------------------------------------------

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'int main(void) { return 0; }' >"$scratch/main.c"
echo '#include <string.h>' >"$scratch/header.c"

# Whether a compiler with these options makes a program of the file. Tools are tried out, not just looked for: their
# libraries are packages of their own.
builds() { command -v "$1" >/dev/null && (cd "$scratch" && "$@" -o out) >/dev/null 2>&1; }

SANITIZERS='-fsanitize=address,undefined'

# Prints the packages of what is missing. The two names of Debian 12 and Ubuntu 24.04 are the same, except for clang's
# sanitizers, which carry clang's version.
missing_packages() {
  builds cc main.c || echo gcc libc6-dev
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  [ "$kind" = dev ] || return 0
  for tool in make cmake cppcheck qemu-system-arm; do
    command -v $tool >/dev/null || echo $tool
  done
  builds gcc $SANITIZERS main.c || echo gcc libc6-dev
  command -v c++ >/dev/null || echo g++
  builds clang $SANITIZERS main.c || echo clang "$(clang_runtime)"
  builds arm-none-eabi-gcc --specs=nano.specs -c header.c || echo gcc-arm-none-eabi libnewlib-arm-none-eabi
}

# The package with the sanitizers of the clang that is installed, or of the one that would be.
clang_runtime() {
  if command -v clang >/dev/null; then
    version=$(clang -dumpversion | cut -d. -f1)
  else
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
  fi
  # Older distributions have the sanitizers in another package, which clang depends on.
  if [ -n "$(apt-cache search --names-only "^libclang-rt-$version-dev\$" 2>/dev/null)" ]; then
    echo "libclang-rt-$version-dev"
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then env DEBIAN_FRONTEND=noninteractive "$@"
  elif command -v sudo >/dev/null; then sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    echo "setup.sh: root must run: $*" >&2
    exit 1
  fi
}

packages=
[ "$kind" = venv ] || packages=$(missing_packages | tr '\n' ' ')
if [ -n "$packages" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup.sh: this machine has no apt-get; install what is in Debian: $packages" >&2
    exit 1
  fi
  echo "== packages: $packages"
  as_root apt-get update -q || echo "setup.sh: the package lists are not up to date"
  # Again, now that the package lists are there: which package has clang's sanitizers stands in them.
  packages=$(missing_packages | tr '\n' ' ')
  as_root apt-get install -y -q --no-install-recommends $packages
  packages=$(missing_packages | tr '\n' ' ')
  if [ -n "$packages" ]; then
    echo "setup.sh: these are installed and yet do not work: $packages" >&2
    exit 1
  fi
fi

# ---- Python environment ------------------------------------------------------------------------------------

python=$VENV/bin/python
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "setup.sh: Python 3.10 or later is needed; $PYTHON is $("$PYTHON" -V 2>&1). PYTHON=... names another" >&2
  exit 1
}

# The stamp is written when everything is installed, and says what: the requirements, for this checkout, with this
# Python. A half-made environment has none; one for less, or of an older checkout, has another.
stamp=$VENV/.installed
if [ "$kind" = run ]; then level=run enough='run dev'; else level=dev enough=dev; fi
wanted="$(cat pyproject.toml requirements/*.lock | cksum) $(pwd -P) $("$PYTHON" -V)"
for installed in $enough; do
  if [ "$(cat "$stamp" 2>/dev/null)" = "$installed $wanted" ] && "$python" -c 'import microfold' 2>/dev/null; then
    exit 0
  fi
done

echo "== Python environment: $VENV"
rm -f "$stamp"
if ! "$python" -m pip --version >/dev/null 2>&1 || [ "$("$python" -V)" != "$("$PYTHON" -V)" ]; then
  "$PYTHON" -m venv --clear "$VENV"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
for lock in $locks; do
  "$python" -m pip install --progress-bar off --require-hashes -r "$lock"
done
# What builds it is in the locks: nothing else is fetched.
"$python" -m pip install --no-deps --no-build-isolation --editable .
"$python" -c 'import microfold'
echo "$level $wanted" >"$stamp"
