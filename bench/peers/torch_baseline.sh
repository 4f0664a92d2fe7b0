#!/bin/sh
# Runs torch_baseline.py, or --script NAME beside it, the way PyTorch is fastest on a CPU: tcmalloc (apt-get install
# libtcmalloc-minimal4) and threads pinned to cores; ranks of several are left where the system puts them. PYTHON names an
# interpreter with torch, transformers and peft. MALLOC=glibc: without tcmalloc.
set -eu
here=$(dirname "$0")
tcmalloc=$(ls /usr/lib/*-linux-gnu/libtcmalloc_minimal.so.4 2>/dev/null | head -n 1 || true)
if [ "${MALLOC:-tcmalloc}" = tcmalloc ]; then
  if [ -z "$tcmalloc" ]; then
    echo "torch_baseline.sh: libtcmalloc_minimal.so.4 not found; apt-get install libtcmalloc-minimal4, or set MALLOC=glibc" >&2
    exit 1
  fi
  # Blocks of a gigabyte and more are ordinary here; the default reports each of them.
  export TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD=100000000000
  export LD_PRELOAD="$tcmalloc"
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}"
script=torch_baseline.py
if [ "${1:-}" = --script ]; then
  script=$2
  shift 2
else
  export OMP_PROC_BIND=close OMP_PLACES=cores
fi
exec "${PYTHON:-python3}" "$here/$script" "$@"
