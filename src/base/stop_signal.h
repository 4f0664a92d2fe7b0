// The signals that stop a run: SIGINT, SIGTERM, SIGHUP and SIGUSR1. mpirun forwards only the last, and kills for the
// others. SIGHUP is left alone where it is ignored (nohup).
// Thread rule: StopSignal by any thread, the rest by the main thread.
#pragma once

namespace temper {

// Before the first step a signal ends the process: SIGINT with 130, the others with `code`, so that Slurm can requeue a
// preempted job. With `waits` the process has some seconds to end by itself: a launcher sends SIGTERM to all ranks when
// one has failed, and its exit code is to be the run's. In effect until InstallStopHandler.
void ExitOnStopSignals(int code, bool waits);

// From now on the first signal is kept for StopSignal, also one that ExitOnStopSignals still waits for. The second ends
// the process at once, except SIGHUP, which kernel and shell both send when a terminal closes. `tell_at_once`: the
// first is confirmed at once.
void InstallStopHandler(bool tell_at_once);

// The first signal since the start; 0: none.
int StopSignal();

// From now on these signals are ignored: the run has stopped already. Launchers send SIGTERM to all ranks once the
// first has exited with a code other than 0, and it must not change the others' exit codes.
void IgnoreStopSignals();

}  // namespace temper
