//! The programs' aya-log records on stderr, for debugging: built with `--features log` only.

use super::error::Error;
use super::object::chain;
use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::thread;
use std::time::Duration;

/// How long a record may wait for its reader.
const PAUSE: Duration = Duration::from_millis(10);

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ipoib")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let _ = writeln!(std::io::stderr(), "{}: {}", record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Prints every record of the loaded programs from now on.
pub fn to_stderr(ebpf: &mut Ebpf) -> Result<(), Error> {
    // Set by an earlier datapath of this process: the same printer.
    let _ = log::set_logger(&Stderr);
    log::set_max_level(LevelFilter::Debug);
    let mut logger = EbpfLogger::init(ebpf).map_err(|error| Error::Load(chain(&error)))?;
    thread::spawn(move || {
        loop {
            logger.flush();
            thread::sleep(PAUSE);
        }
    });
    Ok(())
}
