#!/usr/bin/env bash
# The codec, from folders of clips to kept weights, in one command that may be stopped and given again.
# Usage: training/train_codec.sh RUNS MINUTES [options of training.codec]
# RUNS holds heart/ and michael/ (training.data); MINUTES of training count all runs together, under 12 do on a GPU.
# Begins with training/checkpoints/codec.safetensors where that file is, and keeps what it learned in RUNS/codec.safetensors.
# PYTHON is the environment to use (.venv-train/bin/python).
set -euo pipefail
runs=$(realpath "${1:?usage: training/train_codec.sh RUNS MINUTES}")
minutes=${2:?usage: training/train_codec.sh RUNS MINUTES}
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv-train/bin/python}
kept=training/checkpoints/codec.safetensors
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456
voices=(heart michael)

sources=() coding=()
for voice in "${voices[@]}"; do
    prosody="$runs/prosody_$voice.npz" codes="$runs/codes_$voice.safetensors"
    [ -f "$prosody" ] || "$python" -m training.prosody --data "$runs/$voice" --out "$prosody"
    coding+=(--data "$runs/$voice" --prosody "$prosody" --out "$codes")
    sources+=(--data "$runs/$voice" --cache "$runs/clips_$voice" --codes "$codes" --prosody "$prosody")
done
start=() book=()
if [ -f "$kept" ]; then
    start=(--start "$kept") book=(--codebook "$kept")
fi
[ -f "$runs/codes_${voices[0]}.safetensors" ] || "$python" -m training.factors "${coding[@]}" "${book[@]}"
"$python" -m training.codec "${sources[@]}" --out "$runs/codec" --minutes "$minutes" "${start[@]}" "${@:3}"
"$python" -m training.checkpoint --run "$runs/codec" --codes "$runs/codes_${voices[0]}.safetensors" \
    --out "$runs/codec.safetensors"
