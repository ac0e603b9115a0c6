#!/bin/bash
#SBATCH --job-name=train
#SBATCH --ntasks=5
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4096M
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@60
#
# Weir job train for Slurm: sbatch FILE
#
# `weir` must be in PATH on every node. A job that was preempted, requeued or
# submitted again goes on from its newest checkpoint.
#
# The memory of ps and workers is not computed for a user's program: set
# --memory.
set -euo pipefail

# One directory that all nodes see: checkpoints, curves, the secret.
run=${WEIR_RUN:-$SLURM_SUBMIT_DIR/runs/train}
mkdir -p "$run"

# The job's secret is made once, for this user alone.
if [ ! -s "$run/.secret" ]; then
  (umask 077 && weir secret >"$run/.secret")
fi
export WEIR_SECRET_FILE="$run/.secret"

# A task that ends does not end the others: `weir task` starts its program
# again, and the chief ends the job.
srun --ntasks=5 --cpus-per-task=1 --kill-on-bad-exit=0 \
  --wait=0 --label \
  weir task --layout ps=2,chief=1,worker=2 --port_base 2222 \
    --workdir="$run" \
    --grace_seconds=25 \
    -- python train.py --name 'it'\''s'
