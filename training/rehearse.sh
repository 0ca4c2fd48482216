#!/usr/bin/env bash
# Every training command in miniature, from data to a model that speaks: a rehearsal before the long runs, in about a
# quarter of an hour. What comes out is noise. Usage: training/rehearse.sh FOLDER
# PYTHON is the environment to use (.venv-train/bin/python).
set -euo pipefail
out=${1:?usage: training/rehearse.sh FOLDER}
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv-train/bin/python}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
run() { echo "== training.$*"; "$python" -m "training.$1" "${@:2}"; }

head -n 4 training/heldout.txt > "$out.texts"
trap 'rm -f "$out.texts"' EXIT
run data --voice am_michael --hours 0.03 --seed 1 --out "$out/data"
run data --out "$out/data" --check
run prosody --data "$out/data" --out "$out/prosody.npz"
run factors --data "$out/data" --prosody "$out/prosody.npz" --out "$out/codes.safetensors"
run plans --hours 0.02 --seed 2 --exclude "$out/data" --out "$out/plans"
run factors --data "$out/plans" --prosody "$out/plans/prosody.npz" --codebook "$out/codes.safetensors" \
    --out "$out/plans/codes.safetensors"
run codec --data "$out/data" --cache "$out/clips" --codes "$out/codes.safetensors" --prosody "$out/prosody.npz" \
    --out "$out/codec" --minutes 2 --judge-from 0.5
run lm --data "$out/data" --codes "$out/codes.safetensors" --data "$out/plans" --codes "$out/plans/codes.safetensors" \
    --out "$out/lm" --minutes 2
run export --lm "$out/lm" --codec "$out/codec" --out "$out/voice"
run data --texts "$out.texts" --id-prefix h --out "$out/heldout"
run prosody --data "$out/heldout" --out "$out/prosody_heldout.npz"
run factors --data "$out/heldout" --codebook "$out/codes.safetensors" \
    --prosody "$out/prosody_heldout.npz" --out "$out/codes_heldout.safetensors"
run checkpoint --run "$out/lm" --codes "$out/codes.safetensors" --out "$out/lm.safetensors"
run report --model "$out/voice" --teacher "michael=$out/heldout" --codes "michael=$out/codes_heldout.safetensors" \
    --limit 4 --options '{"max_new_tokens": 60}' --out "$out/report.md"
echo "== done: $out/voice speaks, $out/report.md judges it"
