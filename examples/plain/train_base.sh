#!/usr/bin/env bash
# Trains the example's base model from nothing and puts its weights into examples/plain/model: 5 epochs over
# base_train.jsonl (made first, by Python 3), about two and a half minutes on two cores. Run from anywhere after building.
#   examples/plain/train_base.sh [PROGRAM]     build/temper by default
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 examples/plain/make_data.py  # base_train.jsonl is too large to ship
temper=${1:-build/temper}
out=out/base
"$temper" train --model examples/plain/model --from_scratch --method full \
  --data examples/plain/base_train.jsonl --eval_data examples/plain/base_eval.jsonl --output_dir "$out" --overwrite \
  --max_seq_len 256 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --num_train_epochs 5 \
  --learning_rate 3e-3 --adam_beta2 0.99 --save_steps 0 --eval_steps 100 --logging_steps 20
"$temper" export --model "$out" --output_dir "$out/export" --overwrite
cp "$out/export/model.safetensors" examples/plain/model/model.safetensors
