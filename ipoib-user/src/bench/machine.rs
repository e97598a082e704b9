//! The machine on which something was measured: figures without it mean nothing.

use serde::Serialize;
use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is known of it; a fact that can't be read is missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Version of `ipoib`.
    pub ipoib: &'static str,
    /// When the benchmark began: UTC, ISO 8601.
    pub date: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Its architecture.
    pub architecture: &'static str,
    /// The CPU's model name.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: Option<usize>,
    /// Load average of the minute before: what else was going on.
    pub load: Option<f64>,
    /// `net.core.bpf_jit_enable`: without the JIT, programs are interpreted.
    pub bpf_jit: Option<u8>,
}

impl Machine {
    /// Reads it, now.
    pub fn read() -> Machine {
        let read = |path| fs::read_to_string(path).ok();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let loads = read("/proc/loadavg");
        Machine {
            ipoib: env!("CARGO_PKG_VERSION"),
            date: iso_8601(now.as_secs()),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            architecture: std::env::consts::ARCH,
            cpu: read("/proc/cpuinfo").as_deref().and_then(model),
            cpus: thread::available_parallelism().ok().map(usize::from),
            load: loads.and_then(|text| text.split_whitespace().next()?.parse().ok()),
            bpf_jit: read("/proc/sys/net/core/bpf_jit_enable")
                .and_then(|text| text.trim().parse().ok()),
        }
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut text = format!("Linux {}, {}", known(&self.kernel), known(&self.cpu));
        if let Some(cpus) = self.cpus {
            text += &format!(" x {cpus}");
        }
        if let Some(load) = self.load {
            text += &format!(", load {load} before");
        }
        if self.bpf_jit == Some(0) {
            text += ", programs interpreted (net.core.bpf_jit_enable = 0)";
        }
        text + &format!(", {}", self.date)
    }
}

fn model(cpuinfo: &str) -> Option<String> {
    let (_, model) = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?
        .split_once(':')?;
    Some(model.trim().to_owned())
}

/// Seconds since 1970 in the calendar that everybody uses.
fn iso_8601(seconds: u64) -> String {
    let (mut day, second) = (seconds / 86400, seconds % 86400);
    let mut year = 1970;
    while day >= days_of_year(year) {
        day -= days_of_year(year);
        year += 1;
    }
    let february = days_of_year(year) - 337;
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}Z",
        day + 1,
        second % 60
    )
}

fn days_of_year(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    365 + u64::from(leap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(iso_8601(seconds), date);
        }
    }

    #[test]
    fn a_model_is_found_where_the_architecture_names_one() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags: x\n";
        assert_eq!(model(cpuinfo), Some("AMD EPYC".to_owned()));
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn the_line_says_what_is_known() {
        let mut machine = Machine::read();
        assert!(machine.kernel.is_some() && machine.cpus.is_some());
        machine.kernel = None;
        machine.bpf_jit = Some(0);
        let text = machine.text();
        assert!(
            text.starts_with("Linux unknown, ") && text.contains("interpreted"),
            "{text}"
        );
        assert!(!text.contains('\n'));
    }
}
