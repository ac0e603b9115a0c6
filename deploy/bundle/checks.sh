# What check_bundle.sh and check_wheel.sh share. To be sourced by a script that
# then sets `work` to a temporary folder of its own.
# shellcheck shell=bash

die() {
  printf 'weir: %s\n' "$1" >&2
  exit "${2:-2}"
}

subject=${0##*/check_}
subject=${subject%.sh}
failed=0
# check WHAT COMMAND...: says in one line whether it succeeds.
check() {
  local what=$1 begin=$SECONDS
  shift
  # shellcheck disable=SC2154
  if "$@" >"$work/log" 2>&1; then
    printf '%s: %s: passed in %d s\n' "$subject" "$what" "$((SECONDS - begin))"
  else
    printf '%s: %s: FAILED\n' "$subject" "$what"
    tail -n 8 "$work/log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}

# Whether FILE and what is beside it have the SHA-256 that FILE.sha256 says.
has_checksum() {
  (cd "$(dirname "$1")" && sha256sum --check --strict "${1##*/}.sha256")
}

# end_checks FILE: ends the script if a check of FILE failed.
end_checks() { [ "$failed" -eq 0 ] || die "$1: $failed checks failed" 1; }
