#!/usr/bin/env bash
# The language model, from folders of clips and plans to kept weights, in one command that may be stopped and given again.
# Usage: training/train_lm.sh RUNS MINUTES [options of training.lm]
# RUNS holds heart/ and michael/ (training.data), plans_heart/ and plans_michael/ (training.plans), and the prosody and
# codes of the first two (training/train_codec.sh makes what is missing); MINUTES of training count all runs together,
# under 12 do on a GPU. Begins with training/checkpoints/lm.safetensors where that file is, and keeps what it learned in
# RUNS/lm.safetensors. PYTHON is the environment to use (.venv-train/bin/python).
set -euo pipefail
runs=$(realpath "${1:?usage: training/train_lm.sh RUNS MINUTES}")
minutes=${2:?usage: training/train_lm.sh RUNS MINUTES}
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv-train/bin/python}
kept=training/checkpoints/lm.safetensors
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456

sources=() coding=()
for voice in heart michael; do
    codes="$runs/codes_$voice.safetensors" planned="$runs/plans_$voice/codes.safetensors"
    coding+=(--data "$runs/plans_$voice" --prosody "$runs/plans_$voice/prosody.npz" --out "$planned")
    sources+=(--data "$runs/$voice" --codes "$codes" --data "$runs/plans_$voice" --codes "$planned")
done
"$python" -m training.factors "${coding[@]}" --codebook "$runs/codes_heart.safetensors"
start=()
[ -f "$kept" ] && start=(--start "$kept")
"$python" -m training.lm "${sources[@]}" --out "$runs/lm" --minutes "$minutes" "${start[@]}" "${@:3}"
"$python" -m training.checkpoint --run "$runs/lm" --codes "$runs/codes_heart.safetensors" --out "$runs/lm.safetensors"
