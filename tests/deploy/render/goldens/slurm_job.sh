#!/bin/bash
#SBATCH --job-name=small-job
#SBATCH --ntasks=6
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=624M
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@60
#
# Weir job small-job for Slurm: sbatch FILE
#
# `weir` must be in PATH on every node. A job that was preempted, requeued or
# submitted again goes on from its newest checkpoint.
set -euo pipefail

# One directory that all nodes see: checkpoints, curves, the secret.
export run=${WEIR_RUN:-$SLURM_SUBMIT_DIR/runs/small-job}
mkdir -p "$run"
rm -f "$run/.failed"

# The job's secret is made once, for this user alone.
if [ ! -s "$run/.secret" ]; then
  (umask 077 && weir secret >"$run/.secret")
fi
export WEIR_SECRET_FILE="$run/.secret"

# `weir task` starts a program again that was killed. One that fails for good
# stops the other tasks, which save the job first.
# shellcheck disable=SC2016  # each task's shell expands it
one_task='
  stopped=
  trap stopped=1 TERM
  code=0
  (
    if [ -n "$stopped" ] || [ -e "$run/.failed" ]; then
      exit 143
    fi
    exec "$@"
  ) || code=$?
  if [ "$code" -gt 0 ] && [ "$code" -lt 128 ] && [ "$code" -ne 5 ] &&
    [ -z "$stopped" ] && (set -C && echo "$code" >"$run/.failed") 2>&-; then
    scancel --signal=TERM "$SLURM_JOB_ID.$SLURM_STEP_ID"
  fi
  exit "$code"'

# A task that ends does not end the others: the chief ends the job.
code=0
srun --ntasks=6 --cpus-per-task=1 --kill-on-bad-exit=0 \
  --wait=0 --label \
  /bin/bash -c "$one_task" task \
  weir task --layout ps=2,chief=1,worker=2,evaluator=1 --port_base $((10000 + SLURM_JOB_ID % 1400 * 16)) \
    --job=tests/deploy/render/goldens/small_job.textproto \
    --set=train.epochs=2 \
    --workdir="$run" \
    --grace_seconds=25 \
    --admin_address=0.0.0.0 \
    --device=cpu \
    --evaluator_expected \
  || code=$?
if [ -s "$run/.failed" ]; then
  read -r code <"$run/.failed"  # why the others were stopped
elif [ -e "$run/DONE" ]; then
  code=0  # a task failed, and the job went on without it
fi
exit "$code"
