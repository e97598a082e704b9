//! The wish to stop: set once, by a signal or by a caller, and seen by everything that waits.

use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A flag that can be waited for; clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// A flag that nothing sets but [`Stop::stop`].
    pub fn new() -> Stop {
        Stop::default()
    }

    /// A flag that SIGINT, SIGTERM and SIGHUP set, instead of killing the process. To be called
    /// before any other thread starts: the signals are blocked in this one and in all that follow.
    pub fn on_signals() -> io::Result<Stop> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        // Under nohup it is ignored, and should stay so; a blocked signal would be waited for.
        if !ignored(Signal::SIGHUP) {
            signals.add(Signal::SIGHUP);
        }
        signals.thread_block()?;
        let stop = Stop::new();
        let flag = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                while signals.wait().is_ok() {
                    flag.stop();
                }
            })?;
        Ok(stop)
    }

    /// Sets the flag.
    pub fn stop(&self) {
        *self.flag() = true;
        self.shared.1.notify_all();
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        *self.flag()
    }

    /// Waits until it is set, at most for `time`; returns whether it is.
    pub fn wait(&self, time: Duration) -> bool {
        let waited = self
            .shared
            .1
            .wait_timeout_while(self.flag(), time, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn flag(&self) -> MutexGuard<'_, bool> {
        // Nothing can panic while it is held.
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the call only fills `action`, which has the right type; a
    // zeroed one is valid where it fails.
    let action = unsafe {
        libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_waiter_wakes_as_soon_as_it_is_set() {
        let stop = Stop::new();
        assert!(!stop.wait(Duration::from_millis(1)));
        let waiter = stop.clone();
        let began = Instant::now();
        let thread = thread::spawn(move || waiter.wait(Duration::from_secs(60)));
        stop.stop();
        assert!(thread.join().unwrap());
        assert!(stop.is_set() && began.elapsed() < Duration::from_secs(30));
    }
}
