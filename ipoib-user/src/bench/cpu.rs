//! Less noise: what runs on one CPU stays there, on the same one in every round.

use super::Error;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::panic::resume_unwind;
use std::thread;

/// Runs `work` in a thread on the last CPU that this one may use (the first has the interrupts), and
/// returns its value. A panic in it continues here.
pub fn on_one_cpu<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let settled = || {
            stay_on_last_cpu()?;
            Ok(work())
        };
        let thread = thread::Builder::new()
            .spawn_scoped(scope, settled)
            .map_err(Error::system("starting a thread"))?;
        let outcome: nix::Result<T> = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        outcome.map_err(|errno| Error::system("choosing a CPU")(errno.into()))
    })
}

fn stay_on_last_cpu() -> nix::Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let is_allowed = |&cpu: &usize| allowed.is_set(cpu).unwrap_or(false);
    let mut one = CpuSet::new();
    if let Some(cpu) = (0..CpuSet::count()).rev().find(is_allowed) {
        one.set(cpu)?;
        sched_setaffinity(this, &one)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_has_one_cpu_and_its_parent_all() {
        let cpus = || {
            let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
            (0..CpuSet::count())
                .filter(|&cpu| allowed.is_set(cpu).unwrap())
                .collect::<Vec<_>>()
        };
        let before = cpus();
        assert_eq!(on_one_cpu(cpus).unwrap(), [*before.last().unwrap()]);
        assert_eq!(cpus(), before);
    }

    #[test]
    fn a_panic_continues_in_the_caller() {
        let caught = std::panic::catch_unwind(|| on_one_cpu(|| panic!("from inside")));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"from inside"));
    }
}
