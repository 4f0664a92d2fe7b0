#!/bin/sh
# Small runs of the program on a GPU whose results must agree. scripts/gpu_check.sh runs them after the tests of
# kernels. One line per run on stdout.
#   scripts/gpu_runs.sh commands 'TEMPER' OUT   train, eval and generate: on the CPU and on the GPU
#   scripts/gpu_runs.sh tiers 'TEMPER' OUT      the same bytes for any placement of weights, states and activations
#   scripts/gpu_runs.sh ranks 'TEMPER' OUT      two GPUs: the losses of one GPU, for each way to divide the work
# TEMPER: the program, with its first arguments if it needs any. Without a GPU: 'build/scenario_device --temper'.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 3 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
what=$1 temper=$2 out=$3
mkdir -p "$out"

# train NAME OPTION...: a short run of $model with $rows rows a step into $out/NAME; its last lines if it fails.
model=examples/plain/model rows=4
train() {
  name=$1
  shift
  # shellcheck disable=SC2086  # words
  if $temper train --model "$model" --data examples/plain/pirate_train.jsonl --dtype f32 --max_seq_len 128 \
    --gradient_accumulation_steps $rows --learning_rate 1e-3 --max_steps 8 --output_dir "$out/$name" --overwrite true \
    --tensorboard false "$@" >"$out/$name.out" 2>&1; then
    return 0
  fi
  echo "$name: failed"
  tail -n 3 "$out/$name.out"
  return 1
}
failed=0

# same NAME BASE FILE OPTION...: the run NAME writes the same FILE as run BASE, and reports moves.
same() {
  name=$1 base=$2 file=$3
  shift 3
  if ! train "$name" "$@"; then
    failed=1
  elif ! cmp -s "$out/$base/$file" "$out/$name/$file"; then
    echo "$name: $file differs from that of $base"
    failed=1
  elif ! grep -q '^memory ' "$out/$name.out"; then
    echo "$name: nothing was placed"
    failed=1
  else
    echo "$name: the bytes of $base"
  fi
}

# The losses of a run, one per step.
losses() { sed -n 's/.*"loss": *\([-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }
# close NAME BASE: step by step the losses agree to 1e-4: f32 sums in another order, eight steps.
close() {
  losses "$out/$1" >"$out/$1.losses"
  losses "$out/$2" >"$out/$2.losses"
  if paste "$out/$1.losses" "$out/$2.losses" | awk -v name="$1" -v base="$2" '
    { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d; n += 1 }
    END { printf "%s: %d losses within %.1e of those of %s\n", name, n, most, base; exit !(n == 8 && most < 1e-4) }'; then
    return 0
  fi
  echo "$1: losses differ from those of $2"
  failed=1
}

# answer NAME COMMAND OPTION...: the command's output, in $out/NAME.out.
answer() {
  name=$1
  shift
  # shellcheck disable=SC2086
  if $temper "$@" >"$out/$name.out" 2>"$out/$name.err"; then
    echo "$name: $(tr '\n' ' ' <"$out/$name.out")"
  else
    echo "$name: failed"
    tail -n 3 "$out/$name.err"
    failed=1
  fi
}

case $what in
  commands)
    head -n 12 examples/plain/pirate_eval.jsonl >"$out/eval.jsonl"
    for device in cpu gpu; do
      train "on_$device" --device $device || exit 1
      # Both with the model trained on the CPU.
      answer "eval_on_$device" eval --model "$out/on_cpu" --data "$out/eval.jsonl" --device $device --dtype f32
      answer "generate_on_$device" generate --model "$out/on_cpu" --prompt 'The ship' --max_new_tokens 24 \
        --temperature 0 --device $device --dtype f32
    done
    close on_gpu on_cpu
    # Losses of the same weights: f32 sums in another order.
    if ! paste "$out/eval_on_gpu.out" "$out/eval_on_cpu.out" | sed 's/[^\t]*"eval_loss": *\([-0-9.e+]*\)[^\t]*/\1/g' |
      awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; n += 1 } END { exit !(n == 1 && $2 > 0 && d < 1e-4) }'; then
      echo "eval: the loss on the GPU differs from the CPU's"
      failed=1
    fi
    if ! [ -s "$out/generate_on_gpu.out" ] || ! cmp -s "$out/generate_on_gpu.out" "$out/generate_on_cpu.out"; then
      echo "generate: the text on the GPU differs from the CPU's"
      failed=1
    fi
    ;;
  tiers)
    # Without clipping: the norm is summed where gradients live, in a different order. With the library's first choice of
    # products: by time two runs may choose differently.
    exact="--device gpu --max_grad_norm 0 --time_products false"
    # shellcheck disable=SC2086
    train full $exact --method full || exit 1
    # shellcheck disable=SC2086
    train lora $exact || exit 1
    full="full model.safetensors $exact --method full"
    lora="lora adapter_model.safetensors $exact"
    # shellcheck disable=SC2086
    {
      same full_host $full --memory.tiers host
      same full_states_at_host $full --memory.optimizer host
      same full_states_on_disk $full --memory.optimizer disk --memory.disk "$out"
      same full_limited $full --memory.device 24MiB
      same full_host_without_graphs $full --memory.tiers host --graphs false
      same lora_weights_at_host $lora --memory.weights host
      same lora_weights_on_disk $lora --memory.weights disk
      same lora_activations_at_host $lora --memory.activations host
    }
    ;;
  ranks)
    # A model whose heads two ranks can share.
    mkdir -p "$out/even"
    cp examples/plain/model/*.json "$out/even/"
    sed -i 's/"num_attention_heads": 5/"num_attention_heads": 4/; s/"num_key_value_heads": 1/"num_key_value_heads": 2/' \
      "$out/even/config.json"
    for method in full lora; do
      scratch=true
      [ $method = full ] || scratch=false
      model=$out/even
      [ $method = full ] || model=$out/one_full
      rows=4
      train one_$method --device gpu --method $method --from_scratch $scratch || exit 1
      for mesh in dp=2 fsdp=2 tp=2 cp=2 pp=2; do
        name=$(echo $mesh | tr -d =)_$method
        # The same rows per step as one GPU, over the ranks with their own rows.
        rows=4
        case $mesh in dp=2 | fsdp=2) rows=2 ;; esac
        if train "$name" --device gpu --method $method --from_scratch $scratch --nprocs 2 --mesh $mesh; then
          close "$name" one_$method
        else
          failed=1
        fi
      done
    done
    ;;
  *)
    echo "gpu_runs: unknown '$what': use commands, tiers or ranks" >&2
    exit 2
    ;;
esac
exit $failed
