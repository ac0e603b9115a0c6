#!/bin/sh
# Weir without its source: trains, measures and checks on this machine.
#
#   ./weir train JOB [options]   train a job on a local cluster
#   ./weir run ... -- COMMAND    your own program as the workers of a cluster
#   ./weir render TARGET JOB     write files for Kubernetes, Slurm or compose
#   ./weir config check ...      check TF_CONFIG and a job file
#   ./weir checkpoint ...        list | inspect | verify | export
#   ./weir tables ...            report | shrink, of a running job
#   ./weir top [DIR] ...         what a running job does and what holds it back
#   ./weir trace DIR             a timeline of a running job, for Perfetto
#   ./weir page [DIR]            print the link to the page of a running job
#   ./weir evaluate JOB ...      evaluate one checkpoint
#   ./weir predict JOB ...       write predictions of one checkpoint
#   ./weir logs [DIR] ...        the logs of a run's tasks as one, by time
#   ./weir secret                print a new secret for the tasks of a job
#   ./weir certs ...             write certificates for the tasks of a job
#   ./weir task ...             run one task of a cluster: the command of a container
#   ./weir probe                ask whether the task of this container is ready
#   ./weir gpu-check             check this machine's GPU
#   ./weir bench NAME [options]  measure; without NAME: which there are
#   ./weir version
set -eu

say() { printf 'weir: %s\n' "$*" >&2; }

die() {
  say "$1"
  exit 2
}

self=$(readlink -f "$0")
root=$(dirname "$self")

# Where CUDA libraries may be beside the places that ld.so knows, one a line.
cuda_folders() {
  [ -z "${CUDA_HOME:-}" ] || printf '%s\n' "$CUDA_HOME/lib64" "$CUDA_HOME/lib"
  printf '%s\n' /usr/local/cuda/lib64
  if command -v python3 >/dev/null 2>&1; then
    python3 -c '
import sys
for path in sys.path:
    if path.endswith("-packages"):
        for part in "cu13", "cublas", "cudnn":
            print("%s/nvidia/%s/lib" % (path, part))
' 2>/dev/null || true
  fi
  toolkit=${XDG_CACHE_HOME:-${HOME:-}/.cache}/weir/cuda-13.0/nvidia
  printf '%s\n' "$toolkit/cu13/lib" "$toolkit/cudnn/lib"
}

# Lets ld.so find CUDA library $1, if this machine has it.
find_cuda_library() {
  case "$known" in
    *"$1 "*) return ;;
  esac
  split=$IFS
  IFS=:
  for folder in ${LD_LIBRARY_PATH:-}; do
    [ ! -e "$folder/$1" ] || {
      IFS=$split
      return
    }
  done
  IFS='
'
  for folder in $folders; do
    [ -e "$folder/$1" ] || continue
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    export LD_LIBRARY_PATH
    break
  done
  IFS=$split
}

find_cuda() {
  [ -e "$root/lib/libweir_cuda.so" ] || return 0
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) || known=
  case "$known" in
    *"libcublasLt.so.13 "*"libcudnn.so.9 "*) return ;;
  esac
  set -f # folder names are no patterns
  folders=$(cuda_folders)
  find_cuda_library libcublasLt.so.13
  find_cuda_library libcudnn.so.9
  set +f
}

# run PROGRAM ARGUMENT...: becomes this program of the bundle.
run() {
  program=$1
  shift
  find_cuda
  # What looks for a build's tree or for the examples finds them here.
  WEIR_ROOT=$root WEIR_BIN_DIR=$root/bin exec "$root/bin/$program" "$@"
}

bench_names() {
  for path in "$root"/bin/*_bench; do
    name=${path##*/}
    printf ' %s' "${name%_bench}"
  done
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
  train | run | render | config | checkpoint | tables | top | trace | evaluate | predict | page | logs | secret | certs | task | probe | gpu-check)
    run weir_cli "$command" "$@"
    ;;
  bench)
    name=${1:-}
    case $name in
      '' | */*) die "usage: ./weir bench NAME [options]; there are:$(bench_names)" ;;
    esac
    [ -x "$root/bin/${name}_bench" ] ||
      die "this bundle has no bench '$name'; there are:$(bench_names)"
    shift
    run "${name}_bench" "$@"
    ;;
  version | --version) read -r version <"$root/VERSION" && printf '%s\n' "$version" ;;
  help | --help | -h)
    while IFS= read -r line; do
      case $line in
        '#!'*) ;;
        '#'*) line=${line#\#} && printf '%s\n' "${line# }" ;;
        *) break ;;
      esac
    done <"$self"
    ;;
  *) die "a bundle has no command '$command': build and test need Weir's source; try ./weir help" ;;
esac
