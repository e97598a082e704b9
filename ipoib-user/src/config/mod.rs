//! The configuration file: read, checked with every finding at its place, and turned into what this
//! version can run.

mod at;
mod check;
mod cover;
mod fields;
mod findings;
mod groups;
pub mod model;
mod near;
mod policies;
pub mod schema;
mod source;
#[cfg(test)]
mod tests;
mod today;
mod tree;
mod values;

pub use at::{At, Scalar};
pub use findings::{Finding, Problem};
pub use source::{Error, MAX_BYTES, read};
pub use today::Plan;

use findings::Findings;
use model::File;
use serde::Serialize;

/// What a look at a file's text found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What makes the file wrong, by line.
    pub errors: Vec<Finding>,
    /// What may not be meant, by line.
    pub warnings: Vec<Finding>,
    /// What the file has.
    pub summary: Summary,
}

/// How much of everything a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct Summary {
    pub ports: usize,
    pub groups: usize,
    pub prefixes: usize,
    pub classes: usize,
    pub policies: usize,
    pub peers: usize,
    pub profiles: usize,
}

/// Checks a file's text.
pub fn check(text: &str) -> Report {
    let mut findings = Findings::new(text);
    let file = checked(text, &mut findings);
    report(&file, findings)
}

/// Checks a file's text, and whether this version can run it; the plan is there if it can.
pub fn plan(text: &str) -> (Report, Option<Plan>) {
    let mut findings = Findings::new(text);
    let file = checked(text, &mut findings);
    let mut plan = None;
    if findings.errors.is_empty() {
        plan = Some(today::plan(&file, &mut findings)).filter(|_| findings.errors.is_empty());
    }
    (report(&file, findings), plan)
}

fn checked(text: &str, findings: &mut Findings) -> File {
    let file = tree::read(text, findings);
    if !findings.broken {
        check::check(&file, findings);
    }
    file
}

fn report(file: &File, mut findings: Findings) -> Report {
    findings.sort();
    let summary = Summary {
        ports: file.ports.len(),
        groups: file.groups.len(),
        prefixes: file.groups.values().map(|group| group.value.len()).sum(),
        classes: file.classes.len(),
        policies: file.policies.len(),
        peers: file.peers.len(),
        profiles: file.profiles.len(),
    };
    Report {
        errors: findings.errors,
        warnings: findings.warnings,
        summary,
    }
}
