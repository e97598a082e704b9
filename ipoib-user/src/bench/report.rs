//! The whole result: the machine, the rows, what was lost, and every round behind them.

use super::Error;
use super::machine::Machine;
use super::plan::{Kind, Plan};
use super::rounds::{Round, Sample};
use super::rows::{self, Row};
use crate::show::VERSION;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Packets that did not arrive; their row counts those that did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The row.
    pub name: &'static str,
    /// Packets that were sent with each of the two.
    pub sent: u64,
    /// Packets that the datapath lost.
    pub ours: u64,
    /// Packets that the kernel lost.
    pub peer: u64,
}

/// What a benchmark found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this object.
    v: u32,
    /// Where and when it was measured.
    pub machine: Machine,
    /// The results.
    pub rows: Vec<Row>,
    /// Rows of which packets were lost.
    pub losses: Vec<Loss>,
    #[serde(skip)]
    raw: String,
}

impl Report {
    /// An empty one.
    pub fn new(machine: Machine) -> Report {
        Report {
            v: VERSION,
            machine,
            rows: Vec::new(),
            losses: Vec::new(),
            raw: rows::RAW_HEADER.to_owned(),
        }
    }

    /// Adds the rounds of a plan.
    pub fn add(&mut self, plan: &Plan, rounds: &[Round]) -> Result<(), Error> {
        let too_few = Error::TooFewRounds {
            rounds: rounds.len(),
        };
        self.rows.push(Row::new(plan, rounds).ok_or(too_few)?);
        self.raw += &rows::raw(plan, rounds);
        if plan.kind == Kind::Packets {
            let lost = |sample: Sample| sample.sent - sample.received;
            let loss = Loss {
                name: plan.name,
                sent: rounds.iter().map(|round| round.ours.sent).sum(),
                ours: rounds.iter().map(|round| lost(round.ours)).sum(),
                peer: rounds.iter().map(|round| lost(round.peer)).sum(),
            };
            if loss.ours + loss.peer > 0 {
                self.losses.push(loss);
            }
        }
        Ok(())
    }

    /// Whether no row misses its target.
    pub fn ok(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// Every measurement as CSV, with a header (see `rows::raw`).
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = rows::table(&self.rows);
        for loss in &self.losses {
            let Loss {
                name,
                sent,
                ours,
                peer,
            } = loss;
            text += &format!("{name}: of {sent} packets each, ours lost {ours}, the peer {peer}\n");
        }
        text += &format!("measured on {}\n", self.machine.text());
        text += "ours: the datapath; peer: plain kernel forwarding, for the program an empty one; \
                 between veth ports.\n\
                 A ratio is the median of the rounds' ours / peer; it holds for this machine, and \
                 the figures beside it only help to read it.\n";
        text
    }

    /// Writes `bench.json` and `raw.csv` to a directory, which is made.
    pub fn keep(&self, directory: &Path) -> Result<(), Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Write { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let json = directory.join("bench.json");
        let text = self.json().map_err(|error| failed(&json)(error.into()))?;
        fs::write(&json, text + "\n").map_err(failed(&json))?;
        let raw = directory.join("raw.csv");
        fs::write(&raw, self.raw()).map_err(failed(&raw))
    }

    /// One object.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::forwarder::Side;
    use super::super::plan::PLANS;
    use super::*;
    use serde_json::Value;

    fn report(ours: f64, received: u64) -> Report {
        let sample = |value, received| Sample {
            value,
            seconds: 1.0,
            sent: 10,
            received,
        };
        let round = Round {
            first: Side::Ours,
            ours: sample(ours, received),
            peer: sample(1.0, 10),
        };
        let mut report = Report::new(Machine::read());
        report.add(&PLANS[0], &[round; 15]).unwrap();
        report
    }

    #[test]
    fn it_is_one_object_with_a_version() {
        let report = report(1.0, 10);
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["v"], 1);
        assert_eq!(json["rows"][0]["name"], PLANS[0].name);
        assert_eq!(
            json["machine"]["kernel"],
            report.machine.kernel.clone().unwrap()
        );
        assert_eq!(json["losses"], Value::Array(Vec::new()));
        assert_eq!(
            json.as_object().unwrap().len(),
            4,
            "raw rows are kept elsewhere"
        );
    }

    #[test]
    fn a_target_that_is_missed_is_a_finding() {
        assert!(report(1.0, 10).ok());
        assert!(!report(0.99, 10).ok());
    }

    #[test]
    fn lost_packets_are_said() {
        let report = report(1.0, 8);
        assert_eq!(report.losses[0].ours, 30);
        assert!(
            report
                .text()
                .contains("of 150 packets each, ours lost 30, the peer 0\n")
        );
    }

    #[test]
    fn both_files_are_kept() {
        let directory =
            std::env::temp_dir().join(format!("ipoib-bench-report-{}", std::process::id()));
        let report = report(1.0, 10);
        report.keep(&directory.join("new")).unwrap();
        let read = |name| fs::read_to_string(directory.join("new").join(name)).unwrap();
        assert_eq!(read("bench.json"), report.json().unwrap() + "\n");
        assert_eq!(read("raw.csv").lines().count(), 1 + 15 * 2);
        let error = report.keep(&directory.join("new/raw.csv")).unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
