#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs nearlight's GPU tests on this machine. See usage below.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'TXT'
usage: ./run.sh [--gpus N] [PROGRAM...]              all GPU test programs, or those named
       ./run.sh --sanitize [--gpus N] [PROGRAM...]   the same under compute-sanitizer: memcheck, initcheck,
                                                     synccheck, and racecheck where shared memory is used;
                                                     without the tests of the bench, which start programs
       ./run.sh [--gpus N] -- COMMAND [ARGS]         any command in the same environment;
                                                     ./run.sh -- nearlight bench all_reduce
                                                     ./run.sh -- python3 python/tests/torch_gpu_test.py
                                                     ./run.sh -- python3 decode/run.py --json FILE
                                                     ./run.sh -- python3 nccl_tests/run.py check --programs DIR

A number alone means --gpus. A test fails, rather than being skipped, when it needs more GPUs than it sees and
not more than N; N is the number of GPUs on this machine unless given. Logs are written to logs/ beside this
script, or to NEARLIGHT_LOG_DIR. The closing line is "N passed, N failed".

  NEARLIGHT_NCCL_DIR=DIR         where libnccl.so.2 is (else: Python's package nvidia.nccl, else the system's)
  NEARLIGHT_TEST_TIMEOUT=S       seconds for one test program (else five times the limit of one of its tests,
                                 under compute-sanitizer twenty times)
  GTEST_FILTER=PATTERN           which tests, as in GoogleTest
  NEARLIGHT_SANITIZE_FILTER=PATTERN   the same for --sanitize
  NEARLIGHT_SANITIZE_TOOLS="memcheck synccheck"   which tools
  NEARLIGHT_COMPUTE_SANITIZER=PATH
TXT
}

die() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 2
}

# ---- arguments ----------------------------------------------------------------------------------------

sanitize=0 gpus='' command_given=0
programs=()
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize) sanitize=1 ;;
    --gpus)
      [ $# -gt 1 ] || die "--gpus needs a number"
      shift
      gpus=$1
      ;;
    --)
      shift
      command_given=1
      break
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) die "not understood: $1 (--help tells more)" ;;
    *[!0-9]*) programs+=("$1") ;;
    *) gpus=$1 ;;
  esac
  shift
done

# ---- environment --------------------------------------------------------------------------------------

if [ -z "$gpus" ]; then
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    visible=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
    [ "$visible" -ge "$gpus" ] || gpus=$visible
  fi
fi
case "$gpus" in '' | *[!0-9]*) die "--gpus needs a number, not '$gpus'" ;; esac

folder_of() { # folder_of nvidia.PACKAGE: where the libraries of that Python package are
  python3 -c 'import importlib, os, sys; print(os.path.join(list(importlib.import_module(sys.argv[1]).__path__)[0], "lib"))' \
    "$1" 2>/dev/null
}

find_nccl() { # the folder of libnccl.so.2
  local dir
  if [ -n "${NEARLIGHT_NCCL_DIR:-}" ]; then
    [ -e "$NEARLIGHT_NCCL_DIR/libnccl.so.2" ] || die "NEARLIGHT_NCCL_DIR has no libnccl.so.2: $NEARLIGHT_NCCL_DIR"
    printf '%s\n' "$NEARLIGHT_NCCL_DIR"
    return
  fi
  dir=$(folder_of nvidia.nccl)
  if [ -n "$dir" ] && [ -e "$dir/libnccl.so.2" ]; then
    printf '%s\n' "$dir"
    return
  fi
  dir=$(ldconfig -p 2>/dev/null | awk '$1 == "libnccl.so.2" { print $NF; exit }')
  if [ -n "$dir" ]; then dirname "$dir"; fi
}

nccl=$(find_nccl) || exit 2
if [ -n "$nccl" ]; then export LD_LIBRARY_PATH="$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; fi
# NVSHMEM loads parts of itself by name from there, too.
nvshmem=$(folder_of nvidia.nvshmem)
if [ -n "$nvshmem" ] && [ -e "$nvshmem/libnvshmem_host.so.3" ]; then export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$nvshmem"; fi
export PATH="$here/bin:$PATH"
export PYTHONPATH="$here/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export NEARLIGHT_LIB="${NEARLIGHT_LIB:-$here/bin/libnearlight_bench.so}"
export CUDA_DEVICE_MAX_CONNECTIONS=32
# No NVLink multicast, by nobody: not by the peers that are measured either.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export NEARLIGHT_REQUIRE_GPUS="$gpus"
printf 'run.sh: %s GPUs required, NCCL: %s, built from %s\n' "$gpus" "${nccl:-none found}" \
  "$(cat "$here/commit" 2>/dev/null || echo unknown)" >&2

if [ "$command_given" = 1 ]; then
  [ $# -gt 0 ] || die "no command after --"
  exec "$@"
fi

# ---- tests --------------------------------------------------------------------------------------------

logs=${NEARLIGHT_LOG_DIR:-$here/logs}
mkdir -p "$logs" || die "cannot write to $logs"

sanitizer=''
if [ "$sanitize" = 1 ]; then
  for sanitizer in "${NEARLIGHT_COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer)" \
    /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    [ -z "$sanitizer" ] || [ ! -x "$sanitizer" ] || break
  done
  [ -x "$sanitizer" ] || die "no compute-sanitizer here; name one with NEARLIGHT_COMPUTE_SANITIZER"
  export NEARLIGHT_UNDER_SANITIZER=1
  if [ -n "${NEARLIGHT_SANITIZE_FILTER:-}" ]; then export GTEST_FILTER=$NEARLIGHT_SANITIZE_FILTER; fi
fi

passed=0 failed=0 skipped=0

count_of() { # count_of LOG PATTERN: the number in GoogleTest's closing line, else 0
  local number
  number=$(sed -n "s/^\\[  $2 *\\] \\([0-9]*\\) tests\\{0,1\\}[.,].*/\\1/p" "$1" | tail -n 1)
  printf '%s\n' "${number:-0}"
}

run_one() { # run_one NAME LIMIT COMMAND...
  local name=$1 limit=$2 log rc begin=$SECONDS ok bad skip verdict
  shift 2
  log="$logs/$name.log"
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
  rc=$?
  ok=$(count_of "$log" PASSED)
  bad=$(count_of "$log" FAILED)
  skip=$(count_of "$log" SKIPPED)
  case $rc in
    0) verdict=ok ;;
    124 | 137) verdict="timed out after $limit s" ;;
    99) verdict="compute-sanitizer found errors" ;;
    *) verdict="exit status $rc" ;;
  esac
  # A program that died has no closing line, and one that ran nothing has proved nothing.
  if [ $rc -ne 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  if [ $rc -eq 0 ] && [ $((ok + skip)) = 0 ] && [ -z "${GTEST_FILTER:-}" ]; then bad=1 verdict='ran no test'; fi
  passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
  printf '%-44s %5d passed %4d failed %4d skipped %5d s  %s\n' "$name" "$ok" "$bad" "$skip" $((SECONDS - begin)) "$verdict"
  if [ "$bad" != 0 ]; then
    # The first failures, and how it ended.
    grep -n -m 20 -E 'Failure$|^\[  FAILED|^=+ (Error|Invalid|Uninitialized|Barrier|Program hit)|terminate called' "$log" |
      cut -c1-200 | sed 's/^/    /'
    printf '    ... %s\n' "$log"
    tail -n 40 "$log" | cut -c1-200 | sed 's/^/    | /'
  fi
}

wanted() {
  local name
  [ "${#programs[@]}" -gt 0 ] || return 0
  for name in "${programs[@]}"; do
    case "$1" in "$name" | "nearlight_test_$name") return 0 ;; esac
  done
  return 1
}

# What is NCCL's own is not ours to judge: it calls CUDA functions to see them fail (memcheck), and its kernels
# read what nobody wrote (initcheck). That our calls succeed, or fail as they should, the tests check. The tests
# of the bench start it, and its peers, as programs: PyTorch under a tool takes minutes, and what it does is not
# ours either.
under_tool() { # under_tool TOOL PROGRAM: sets the array `command`
  local tool=$1 filter=${GTEST_FILTER:-*}
  local -a options=()
  case $filter in *-*) filter+=: ;; *) filter+=- ;; esac
  filter+='Bench*'
  case $tool in
    memcheck) options=(--report-api-errors no) ;;
    initcheck) filter+=':*nccl_window*:Nccl*' ;;
    # Of the kernels with shared memory; the others have nothing that it looks at.
    racecheck) [ -n "${GTEST_FILTER:-}" ] || filter='*FusedGpu*:*GemvGpu*' ;;
  esac
  command=(env "GTEST_FILTER=$filter" "$sanitizer" --tool "$tool" "${options[@]}" --error-exitcode 99
    --target-processes all "$2")
}

known=0
while read -r name limit flags; do
  wanted "$name" || continue
  known=$((known + 1))
  if [ "$sanitize" = 0 ]; then
    run_one "$name" "${NEARLIGHT_TEST_TIMEOUT:-$((limit * 5))}" "$here/bin/$name"
    continue
  fi
  tools=${NEARLIGHT_SANITIZE_TOOLS:-memcheck initcheck synccheck racecheck}
  for tool in $tools; do
    if [ "$tool" = racecheck ] && [ "$flags" != racecheck ]; then continue; fi
    under_tool "$tool" "$here/bin/$name"
    run_one "$name.$tool" "${NEARLIGHT_TEST_TIMEOUT:-$((limit * 20))}" "${command[@]}"
    if grep -q 'Device not supported' "$logs/$name.$tool.log"; then
      printf 'run.sh: compute-sanitizer says that it does not support this device\n'
      break 2
    fi
  done
done <"$here/gpu-tests.txt"

if [ "$known" = 0 ] || [ "$known" -lt "${#programs[@]}" ]; then
  printf 'run.sh: some of these are no test programs: %s\n' "${programs[*]:-(the list is empty)}"
  failed=$((failed + 1))
fi
printf '%d passed, %d failed' "$passed" "$failed"
if [ "$skipped" -gt 0 ]; then printf ', %d skipped' "$skipped"; fi
printf '\n'
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
