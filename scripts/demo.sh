#!/usr/bin/env bash
# Temper in a few minutes: installs what is missing, builds, and teaches the small model in examples/ two voices, a
# pirate's and a chef's. Exits with an error unless it learns both: the loss on topics outside the training data must
# fall by at least 30 %, and every answer must change.
#
#   scripts/demo.sh                    the whole demo
#   scripts/demo.sh --temper FILE      with an existing program: installs and builds nothing
#   scripts/demo.sh --output_dir DIR   where the adapters go (out/demo)
#   scripts/demo.sh --epochs N         passes over the data, instead of the 8 of examples/*.yaml: with 1 it takes a sixth
#                                      of the time, and the voices mix up their facts
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MODEL=examples/plain/model DATA=examples/plain
readonly VOICES=(pirate chef)
# On topics outside the training data of both voices.
readonly QUESTIONS=("Why does it rain?" "Why does a cat purr?" "How is bread made?")
readonly NEEDED_FALL=30 # per cent

temper=''
out=out/demo
epochs=()
while (($#)); do
  case "$1" in
    --temper) temper=${2:?--temper needs the path of the program} && shift 2 ;;
    --output_dir) out=${2:?--output_dir needs a folder} && shift 2 ;;
    --epochs) epochs=(--num_train_epochs "${2:?--epochs needs a number}") && shift 2 ;;
    *)
      sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
      [[ $1 == --help || $1 == -h ]] && exit 0 || exit 2
      ;;
  esac
done

# --- output style: colours and boxes on a terminal, plain text in a pipe --------------------------------------------

rich=''
[[ -t 1 && -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]] && rich=1
# A bare machine has no locale set, but terminals read UTF-8; the Linux console lacks the dots.
if [[ -n $rich && ${TERM} != linux && -z ${LC_ALL:-}${LC_CTYPE:-}${LANG:-} ]]; then export LC_ALL=C.UTF-8; fi
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in
  *[uU][tT][fF]*8*) line='─' block='█' shade='░' mark='●' tick='✔' cross='✘' ;;
  *) line='-' block='#' shade='.' mark='*' tick='ok' cross='NO' ;;
esac
columns=80
if [[ -n $rich ]]; then
  columns=$(stty size 2>/dev/null </dev/tty | cut -d' ' -f2 || true)
  [[ $columns =~ ^[0-9]+$ && $columns -ge 40 ]] || columns=80
  ((columns <= 100)) || columns=100
fi

paint() { # paint CODE TEXT: in that colour, if there are colours
  if [[ -n $rich ]]; then printf '\e[%sm%s\e[0m' "$1" "$2"; else printf '%s' "$2"; fi
}
repeat() { # repeat COUNT CHARACTER
  local i
  for ((i = 0; i < $1; ++i)); do printf '%s' "$2"; done
}
heading() {
  local rest=$((columns - ${#1} - 4))
  ((rest > 0)) || rest=0
  printf '\n%s %s %s\n\n' "$(paint 2 "$line$line")" "$(paint '1;36' "$1")" "$(paint 2 "$(repeat "$rest" "$line")")"
}
# wrapped TEXT INDENT: lines of at most the terminal's width, all but the first indented by INDENT spaces
wrapped() {
  fold -s -w $((columns - $2)) <<<"$1" | sed "2,\$s/^/$(repeat "$2" ' ')/; s/ *\$//"
}
say() { wrapped "$1" 0; }
colour_of() {
  case "$1" in pirate) echo '1;33' ;; chef) echo '1;35' ;; *) echo '1;37' ;; esac
}
# run COMMAND...: shows the command as a user would type it, then runs it.
run() {
  printf '%s %s\n' "$(paint 2 '$')" "$(paint 1 "$(shown "$@")")"
  "$@"
}
shown() {
  local word text=''
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./=:,+-]+$ ]] || word="\"$word\""
    text+="$word "
  done
  printf '%s' "${text% }"
}
fail() {
  printf '\n%s %s\n' "$(paint '1;31' "$cross")" "$1" >&2
  exit 1
}
seconds_as_text() { if (($1 < 60)); then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi; }
mebibytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
# number KEY <<< JSON: the number after the first "KEY": in a text without nested quotes
number() { sed -n "s/.*\"$1\": *\([-+0-9.eE]*\).*/\1/p" | head -n 1; }

# progress: of the lines of a build, now and then how far it is: "[120/500]" of ninja, "[ 24%]" of make
progress() {
  local text next=0
  while IFS= read -r text; do
    if [[ ! $text =~ ^(\[[^]]*\]) ]] || ((SECONDS < next)); then continue; fi
    echo "  ${BASH_REMATCH[1]} $((SECONDS - started)) s"
    next=$((SECONDS + 15))
  done
}

# --- install and build ----------------------------------------------------------------------------------------------

printf '\n  %s  %s\n' "$(paint '1;36' temper)" 'fine-tunes language models on the hardware you have'
say "
A tiny language model lies in $MODEL. It was trained from nothing by this program, on two processor cores, to explain \
some 350 everyday things in plain words. In the next minutes it learns to explain them like a pirate, and like a chef."

if [[ -z $temper ]]; then
  heading 'Install and build'
  scripts/setup.sh
  started=$SECONDS
  mkdir -p build
  generator=()
  [[ -f build/CMakeCache.txt ]] || generator=(-G Ninja)
  if ! cmake -S . -B build "${generator[@]}" >build/demo.log 2>&1; then
    tail -n 20 build/demo.log >&2
    fail 'cmake could not configure the build: its last lines are above'
  fi
  if [[ -n $rich ]]; then
    cmake --build build --target temper # ninja redraws one line
  elif ! cmake --build build --target temper 2>&1 | tee build/demo.log | progress; then
    tail -n 40 build/demo.log >&2
    fail 'the build failed: its last lines are above, all of them in build/demo.log'
  fi
  echo "built build/temper in $(seconds_as_text $((SECONDS - started)))"
  temper=build/temper
fi
[[ -x $temper ]] || fail "$temper is not a program"
readonly temper
begin=$SECONDS

answer() { # answer MODEL QUESTION
  "$temper" generate --model "$1" --chat --prompt "$2" --max_new_tokens 160 --temperature 0 2>/dev/null
}
held_out_loss() { # held_out_loss MODEL VOICE
  "$temper" eval --model "$1" --data "$DATA/$2_eval.jsonl" 2>/dev/null | number eval_loss
}

# --- before ---------------------------------------------------------------------------------------------------------

heading 'Before: what the model says now'
declare -A said loss_before loss_after planned measured took
for question in "${QUESTIONS[@]}"; do
  said[plain,$question]=$(answer "$MODEL" "$question")
  printf '%s %s\n' "$(paint '1;36' '?')" "$(paint 1 "$question")"
  printf '  %s\n\n' "$(wrapped "${said[plain,$question]}" 2)"
done
for voice in "${VOICES[@]}"; do loss_before[$voice]=$(held_out_loss "$MODEL" "$voice"); done

heading 'The data: what the model will see'
say 'A line of data is a question and an answer in the new voice. The model reads both; only the answer counts toward the \
loss: it is green on a terminal, and in [[ ]] in a pipe.' | sed 's/\\ *//'
echo
run "$temper" data preview --model "$MODEL" --data "$DATA/pirate_train.jsonl" --samples 2

heading 'The plan: what a run will cost, before it runs'
run "$temper" plan examples/pirate.yaml

# --- train ----------------------------------------------------------------------------------------------------------

# Runs a command in the foreground, so that Ctrl-C reaches it, while another process reads its peak memory from the
# kernel and writes it to the file $1.
with_peak_memory() {
  local file=$1
  shift
  rm -f "$file" "$file.pid"
  (
    trap - EXIT
    while [[ ! -s $file.pid ]]; do sleep 0.05; done
    pid=$(<"$file.pid")
    while peak=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null) && [[ -n $peak ]]; do
      echo $((peak * 1024)) >"$file"
      sleep 0.2
    done
  ) &
  local watcher=$! status=0
  # shellcheck disable=SC2016  # for the inner shell
  bash -c 'echo $$ >"$0.pid"; exec "$@"' "$file" "$@" || status=$?
  wait "$watcher" || true
  rm -f "$file.pid"
  return "$status"
}

mkdir -p "$out"
for voice in "${VOICES[@]}"; do
  heading "Train the $voice"
  command=("$temper" train "examples/$voice.yaml" --output_dir "$out/$voice" --overwrite "${epochs[@]}")
  planned[$voice]=$("$temper" plan "examples/$voice.yaml" --json 2>/dev/null | number total)
  printf '%s %s\n' "$(paint 2 '$')" "$(paint 1 "$(shown "${command[@]}")")"
  started=$SECONDS
  with_peak_memory "$out/$voice.peak" "${command[@]}" || fail "training the $voice failed: its message is above"
  took[$voice]=$((SECONDS - started))
  measured[$voice]=$(<"$out/$voice.peak")
  rm -f "$out/$voice.peak"
  loss_after[$voice]=$(held_out_loss "$out/$voice" "$voice")
  for question in "${QUESTIONS[@]}"; do said[$voice,$question]=$(answer "$out/$voice" "$question"); done
done

# --- after ----------------------------------------------------------------------------------------------------------

failures=()
heading 'After: three questions that neither voice was trained on'
for question in "${QUESTIONS[@]}"; do
  printf '%s %s\n' "$(paint '1;36' '?')" "$(paint 1 "$question")"
  for voice in plain "${VOICES[@]}"; do
    printf '  %s %s\n' "$(paint "$(colour_of "$voice")" "$(printf '%-7s' "$voice")")" "$(wrapped "${said[$voice,$question]}" 10)"
    if [[ $voice != plain && (-z ${said[$voice,$question]} || ${said[$voice,$question]} == "${said[plain,$question]}") ]]; then
      failures+=("the $voice's answer to \"$question\" did not change")
    fi
  done
  echo
done

heading 'Loss on the held-out topics (lower is better)'
bar() { # bar LOSS LONGEST: of at most 30 columns
  local full
  full=$(awk -v x="$1" -v most="$2" 'BEGIN { n = int(30 * x / most + 0.5); print (n < 1 ? 1 : n > 30 ? 30 : n) }')
  repeat "$full" "$block"
  repeat $((30 - full)) "$shade"
}
for voice in "${VOICES[@]}"; do
  before=${loss_before[$voice]} after=${loss_after[$voice]}
  if [[ -z $before || -z $after ]]; then
    failures+=("the $voice's held-out loss could not be measured")
    continue
  fi
  fall=$(awk -v b="$before" -v a="$after" 'BEGIN { printf "%.0f", 100 * (1 - a / b) }')
  ok=$(awk -v b="$before" -v a="$after" -v least="$NEEDED_FALL" 'BEGIN { print a <= b * (1 - least / 100) }')
  printf '  %s before  %s  %.3f\n' "$(paint "$(colour_of "$voice")" "$(printf '%-7s' "$voice")")" "$(paint 2 "$(bar "$before" "$before")")" "$before"
  printf '  %-7s after   %s  %.3f  ' '' "$(paint "$(colour_of "$voice")" "$(bar "$after" "$before")")" "$after"
  if ((ok)); then
    printf '%s\n' "$(paint '1;32' "$tick $fall % less")"
  else
    printf '%s\n' "$(paint '1;31' "$cross $fall % less")"
    failures+=("the $voice's held-out loss fell by $fall %, less than $NEEDED_FALL %")
  fi
done

heading 'Memory: the plan beside the run'
printf '  %-9s %14s %26s %9s\n' '' 'planned' 'whole process, measured' 'time'
for voice in "${VOICES[@]}"; do
  printf '  %-9s %14s %26s %9s\n' "$voice" "$(mebibytes "${planned[$voice]}")" "$(mebibytes "${measured[$voice]}")" \
    "${took[$voice]} s"
done
say "
  Every byte of a step has its place before the first step; the rest of the process is the program, its libraries and \
the data."

size=$(du -k "$out/pirate/adapter_model.safetensors" | cut -f1)
heading 'Your turn'
cat <<END
  Talk to them:
    $(paint 1 "$temper chat $out/pirate")
    $(paint 1 "$temper chat $out/chef --temperature 0.7")

  An adapter is a file of $size KiB in PEFT's format. Melt it into a model of its own, for any tool that reads
  Hugging Face folders:
    $(paint 1 "$temper export $out/pirate --output_dir $out/pirate-merged")

  Now a model of yours: a Hugging Face folder of one of the families in docs/supported.md (Llama, Qwen, Gemma, Mistral,
  Phi, OLMo and others) and a file with lines such as {"prompt": "...", "completion": "..."}:
    $(paint 1 "$temper plan  --model FOLDER                       # does it fit?")
    $(paint 1 "$temper data preview --model FOLDER --data FILE    # is it read as intended?")
    $(paint 1 "$temper train --model FOLDER --data FILE --output_dir out/mine")
END

if ((${#failures[@]})); then fail "$(printf '%s; ' "${failures[@]}" | sed 's/; $//')"; fi
printf '\n%s %s\n\n' "$(paint '1;32' "$mark")" "Learned both voices in $(seconds_as_text $((SECONDS - begin))) after the build."
