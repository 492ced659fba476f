#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#SBATCH --ntasks=4 --time=4:00:00 --requeue --open-mode=append --signal=USR1@300
srun --mpi=pmix --kill-on-bad-exit=1 engine run config.toml --out runs/mine
code=$?
[ $code -eq 75 ] && scontrol requeue $SLURM_JOB_ID
exit $code
