# Shows how far a command is that takes long. `weir` sources this file.
#
#   with_progress LOG LABEL COMMAND...
#
# runs COMMAND with its output in LOG and ends with its status. Meanwhile
# standard error shows one line that moves, or, where it is no terminal, a plain
# line now and then: what is done, how many of how many, about how many minutes
# are left. A command that ends within seconds shows nothing. After Ctrl-C the
# script ends with 130 as soon as COMMAND has ended.
#
# The numbers come from LOG: from Bazel's lines "[12 / 345] Compiling a.cc", or
# such lines of another command, or what apt-get writes with APT::Status-Fd=1.
#
# without_progress and show_errors print what a person wants of such a log.
# shellcheck shell=bash

quiet_seconds=3 # a command that ends by then shows nothing

# plain_lines FIRST EVERY: the seconds to the first plain line and between two.
plain_lines() {
  plain_first=$1
  plain_every=$2
}
plain_lines "$quiet_seconds" 30

progress_lines='^(\[[0-9,]+ / [0-9,]+\] |(Loading|Analyzing): |(dl|pm)status:)'

# Prints LOG without the lines that say how far a command is.
without_progress() { grep -aEv "$progress_lines" -- "$1" || true; }

# Reads the newest numbers from LOG into the variables of watch_progress.
read_progress() {
  local line percent='([0-9]+\.?[0-9]*)' count='([0-9,]+)'
  local actions="^\[$count / $count\]( $count / $count tests([^;]*);)?"
  tests=
  # The watcher may be killed at any time; what outlives it must be silent.
  line=$({ tail -c 32768 -- "$1" | grep -aE "$progress_lines" |
    tail -n 1; } 2>/dev/null) || return 0
  if [[ $line =~ $actions ]]; then
    kind=actions
    done_now=${BASH_REMATCH[1]//,/}
    total=${BASH_REMATCH[2]//,/}
    counts="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
    doing=${line:${#BASH_REMATCH[0]}}
    doing=${doing%%;*}
    [ -z "${BASH_REMATCH[3]}" ] ||
      tests=", ${BASH_REMATCH[4]} of ${BASH_REMATCH[5]} tests${BASH_REMATCH[6]}"
  elif [[ $line =~ ^dlstatus:.*:$percent:.*file\ ([0-9]+)\ of\ ([0-9]+) ]]; then
    kind=download
    # Percent with two decimals, as an integer.
    printf -v done_now '%.0f' "${BASH_REMATCH[1]}e2"
    total=10000
    counts="file ${BASH_REMATCH[2]} of ${BASH_REMATCH[3]}"
    doing=" downloading"
  elif [[ $line =~ ^pmstatus:.*:$percent:(.*) ]]; then
    kind=install
    printf -v done_now '%.0f' "${BASH_REMATCH[1]}e2"
    total=10000
    counts="${BASH_REMATCH[1]%.*} %"
    doing=" ${BASH_REMATCH[2]}"
  elif [[ $line =~ ^(Loading|Analyzing): ]]; then
    kind=analysis
    counts=
    doing=" $line"
  fi
}

# Sets `left` to the time that is left if the work goes on at the rate that it
# had since shortly after its begin. Much that is done at once then, because it
# was done before, does not count.
estimate_left() {
  local now=$1 passed seconds
  left=
  if [ "$kind" != "$rate_kind" ] || [ "$done_now" -lt "$rate_done" ]; then
    rate_kind=$kind
    rate_begin=$((now + 2))
    rate_done=$done_now
  elif [ "$now" -le "$rate_begin" ]; then
    rate_done=$done_now
  fi
  passed=$((now - rate_begin))
  if [ "$passed" -ge 4 ] && [ "$done_now" -gt "$rate_done" ]; then
    seconds=$(((total - done_now) * passed / (done_now - rate_done)))
    left=", about $((seconds / 60 + 1)) minutes left"
    [ "$seconds" -ge 60 ] || left=", about 1 minute left"
  fi
}

# Draws the line until it is killed or the script has gone.
watch_progress() {
  local log=$1 label=$2 begin=$3 next=$plain_first now text columns
  local kind='' done_now=0 total=0 counts='' tests='' doing=''
  local rate_kind='' rate_begin=0 rate_done=0 left=''
  LC_ALL=C
  while sleep 1 <&- >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    now=$((SECONDS - begin))
    read_progress "$log"
    estimate_left "$now"
    # What matters most comes first: a terminal may be narrow.
    printf -v text 'weir: %s %d:%02d%s%s%s%s' "$label" $((now / 60)) \
      $((now % 60)) "${counts:+, $counts}" "$left" "$tests" "${doing:+:$doing}"
    text=${text//[[:cntrl:]]/}
    if [ -t 2 ]; then
      [ "$now" -ge "$quiet_seconds" ] || continue
      read -r _ columns < <(stty size <&2 2>/dev/null) || columns=80
      [ "${columns:-0}" -gt 1 ] || columns=80
      printf '\r%s\033[K' "${text:0:columns-1}" >&2
    elif [ "$now" -ge "$next" ]; then
      next=$((now + plain_every))
      printf '%s\n' "${text:0:200}" >&2
    fi
  done
}

with_progress() {
  local log=$1 label=$2 begin=$SECONDS interrupted='' status=0 watcher
  shift 2
  if [ -n "${progress_inside:-}" ]; then # of a command that is shown
    "$@" 2>&1 | tee "$log"
    return
  fi
  : >"$log"
  watch_progress "$log" "$label" "$begin" &
  watcher=$!
  trap 'interrupted=yes' INT
  (progress_inside=yes && "$@") >"$log" 2>&1 || status=$?
  # One group: else Bash may say "Terminated" between the two.
  { kill "$watcher" && wait "$watcher"; } 2>/dev/null || true
  trap - INT
  if [ -t 2 ] && [ $((SECONDS - begin)) -ge "$quiet_seconds" ]; then
    printf '\r\033[K' >&2
  fi
  if [ -n "$interrupted" ]; then
    printf 'weir: interrupted during: %s\n' "$label" >&2
    exit 130
  fi
  return "$status"
}

# The end of a test's output, and before it GoogleTest's first failure.
show_test_output() {
  local first lines=40
  first=$(grep -am 1 -nE '^[^ ]+:[0-9]+: Failure' -- "$1") || first=
  if [ -n "$first" ] && [ "${first%%:*}" -le $(($(wc -l <"$1") - lines)) ]; then
    printf 'The first failure:\n'
    sed -n "${first%%:*},+12p" -- "$1"
    printf '...\n'
    lines=25
  fi
  tail -n "$lines" -- "$1"
}

# The tests that failed, by what Bazel wrote, and what each wrote.
show_failed_tests() {
  local failed line
  local red='^(FAIL|TIMEOUT): (//.*) \(see (.*)\)$'
  failed=$(grep -E "$red" <<<"$1" | sort -u) || return 0
  sed -E "s#$red#\1: \2#" <<<"$failed" | sed -n 1,40p
  while read -r line; do
    [[ $line =~ $red ]] || continue
    printf '\nThe output of %s:\n' "${BASH_REMATCH[2]}"
    show_test_output "${BASH_REMATCH[3]}" | cut -c 1-300
  done <<<"$failed"
}

# The first error and what follows. Without one, the begin and the end.
show_first_error() {
  local lines=$1 limit=$2 first
  if first=$(grep -m 1 -nE '^ERROR: |error: |FAILED' <<<"$lines"); then
    sed -n "${first%%:*},\$p" <<<"$lines" | sed -n "1,${limit}p"
  elif [ "$(wc -l <<<"$lines")" -le "$limit" ]; then
    printf '%s\n' "$lines"
  else
    head -n $((limit / 2)) <<<"$lines"
    printf '...\n'
    tail -n $((limit / 2)) <<<"$lines"
  fi
}

# Prints what went wrong, as LOG tells it, in 200 lines at most: the tests that
# failed, or else the first error. A linker's warnings are left out. No command
# closes a pipe early here: that would end the script.
show_errors() {
  local lines tests limit=190
  local noise='/ld(\.[a-z]+)?: .*warning: |\): warning: Using |^INFO: '
  lines=$(without_progress "$1" | tr -d '\0' | cut -c 1-300 |
    grep -aEv "$noise") || true
  tests=$(show_failed_tests "$lines" 2>&1)
  {
    [ -z "$tests" ] || limit=60
    if [ -z "$tests" ] || grep -q '^ERROR: ' <<<"$lines"; then
      show_first_error "$lines" "$limit"
    fi
    printf '%s\n' "$tests"
  } | sed -n 1,200p
}
