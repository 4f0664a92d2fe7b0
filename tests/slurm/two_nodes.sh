#!/usr/bin/env bash
# A real Slurm cluster of two nodes on one machine, for as long as one command runs in it:
#   tests/slurm/two_nodes.sh srun --nodes 2 --ntasks 4 --mpi=pmix build/temper train run.yaml
# Returns the command's exit code, or 77 if this machine cannot have such a cluster, and says why. Needs root and the
# packages slurm-wlm, munge and iproute2 (scripts/setup.sh --checks).
#
# Everything runs in its own process namespace and ends with its first process: nothing
# is left behind, and concurrent clusters are isolated. Each node has its own network,
# host name and /dev/shm; the nodes share the file system, as in real clusters.
set -euo pipefail

cannot() {
  echo "two_nodes: no cluster here: $1" >&2
  exit 77
}

if [ "${1:-}" != --inside ]; then
  [ $# -gt 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  [ "$(id -u)" = 0 ] || cannot 'it takes root to make namespaces'
  for program in slurmctld slurmd srun munged ip unshare nsenter; do
    command -v $program >/dev/null || cannot "there is no $program"
  done
  # veth pairs and bridges need more kernel support than namespaces.
  unshare --net sh -c 'ip link add name bridge0 type bridge && ip link add name pair0 type veth peer name pair1' 2>/dev/null ||
    cannot 'this kernel gives no network namespaces with bridges'
  # Killing this process kills the first one inside, and so all.
  exec unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
shift

failed() {
  echo "two_nodes: $1; the last lines of the logs:" >&2
  tail -n 15 $dir/log/* >&2 || true
  exit 1
}

hostname control
mount -t tmpfs tmpfs /run # for ip and the cluster; vanishes with it
dir=/run/two_nodes
mkdir -p $dir/{ctld,log,munge,spool.n1,spool.n2,tmp.n1,tmp.n2}
ip link set lo up
ip link add name nodes type bridge
ip addr add 10.77.0.1/24 dev nodes
ip link set nodes up

# A separate munged: this machine's is neither needed nor disturbed.
(umask 077 && head -c 64 /dev/urandom >$dir/munge/key)
munged --force --key-file=$dir/munge/key --socket=$dir/munge/socket --pid-file=$dir/munge/pid \
  --log-file=$dir/munge/log --seed-file=$dir/munge/seed 2>$dir/log/munged

export SLURM_CONF=$dir/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=two
SlurmctldHost=control(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/control
SlurmdLogFile=$dir/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
NodeName=n1 NodeAddr=10.77.0.11 CPUs=2
NodeName=n2 NodeAddr=10.77.0.12 CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
CONF

slurmctld -c 2>$dir/log/slurmctld.err || failed 'slurmctld does not start'
for i in 1 2; do
  ip netns add n$i
  ip link add name veth$i type veth peer name eth0 netns n$i
  ip link set veth$i master nodes up
  ip -n n$i addr add 10.77.0.1$i/24 dev eth0
  ip -n n$i link set eth0 up
  ip -n n$i link set lo up
  # Not `ip netns exec`, which hides the cgroup file system that slurmd reads.
  nsenter --net=/run/netns/n$i unshare --uts --mount --propagation private sh -c "
    hostname n$i && mount -t tmpfs tmpfs /dev/shm && exec slurmd -N n$i" 2>$dir/log/slurmd.n$i ||
    failed "slurmd of n$i does not start"
done
for ((tries = 0; ; ++tries)); do
  [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ] && break
  [ $tries -lt 150 ] || failed 'the nodes did not become idle within 30 s'
  sleep 0.2
done
"$@"
