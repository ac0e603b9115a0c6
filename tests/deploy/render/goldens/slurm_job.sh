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
run=${WEIR_RUN:-$SLURM_SUBMIT_DIR/runs/small-job}
mkdir -p "$run"

# The job's secret is made once, for this user alone.
if [ ! -s "$run/.secret" ]; then
  (umask 077 && weir secret >"$run/.secret")
fi
export WEIR_SECRET_FILE="$run/.secret"

# A task that ends does not end the others: `weir task` starts its program
# again, and the chief ends the job.
srun --ntasks=6 --cpus-per-task=1 --kill-on-bad-exit=0 \
  --wait=0 --label \
  weir task --layout ps=2,chief=1,worker=2,evaluator=1 --port_base 2222 \
    --job=tests/deploy/render/goldens/small_job.textproto \
    --set=train.epochs=2 \
    --workdir="$run" \
    --grace_seconds=25 \
    --device=cpu \
    --evaluator_expected
