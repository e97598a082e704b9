//! One CPU for what runs on one CPU: a scheduler that moves it makes noise.

use super::Error;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::panic::resume_unwind;
use std::thread;

/// Runs `work` in a thread on the last CPU that this one may use (the first has the interrupts),
/// and returns its value. A panic in it continues here.
pub fn pinned<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let this = Pid::from_raw(0);
    let allowed =
        sched_getaffinity(this).map_err(|e| Error::system("reading the CPUs")(e.into()))?;
    let last = (0..CpuSet::count())
        .rev()
        .find(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, || {
                let mut one = CpuSet::new();
                if let Some(cpu) = last {
                    one.set(cpu)?;
                    sched_setaffinity(this, &one)?;
                }
                Ok(work())
            })
            .map_err(Error::system("starting a thread"))?;
        let outcome: nix::Result<T> = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        outcome.map_err(|errno| Error::system("choosing a CPU")(errno.into()))
    })
}
