//! `ipoib check`.

use super::{Failure, say};
use crate::config::{self, Finding, Report, Summary};
use crate::show::VERSION;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check a configuration file, without touching the host
///
/// Every error is a line of its own: place, key, what is wrong, and what to do. Warnings tell what
/// may not be meant and don't make the file wrong.
#[derive(clap::Args)]
#[command(after_help = "Example: ipoib check /etc/ipoib/config.toml\n\n\
    Exit codes: 0 the file is good, 2 it is not, or can't be read.")]
pub struct Args {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        Failure::new(2, error)
    }
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let report = config::check(&config::read(&args.file)?);
    let valid = report.errors.is_empty();
    if args.json {
        say(json!({
            "v": VERSION,
            "file": args.file.display().to_string(),
            "valid": valid,
            "errors": report.errors,
            "warnings": report.warnings,
            "summary": report.summary,
        }));
    } else {
        let mut stderr = std::io::stderr().lock();
        for line in lines(&args.file, &report) {
            let _ = writeln!(stderr, "{line}");
        }
        if valid {
            say(summary(&args.file, &report.summary));
        }
    }
    Ok(ExitCode::from(if valid { 0 } else { 2 }))
}

/// What the file has, in one line.
fn summary(file: &Path, summary: &Summary) -> String {
    let s = summary;
    let counts = [
        (s.ports, "port", "ports"),
        (s.groups, "group", "groups"),
        (s.prefixes, "prefix", "prefixes"),
        (s.classes, "class", "classes"),
        (s.policies, "policy", "policies"),
        (s.peers, "peer", "peers"),
        (s.profiles, "profile", "profiles"),
    ];
    let counts = counts.map(|(count, one, more)| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {more}"),
    });
    format!("{}: good: {}", file.display(), counts.join(", "))
}

/// A line for each finding.
pub(super) fn lines(file: &Path, report: &Report) -> Vec<String> {
    let say = |word: &str, finding| format!("{word}: {}", line(file, finding));
    let errors = report.errors.iter().map(|e| say("error", e));
    let warnings = report.warnings.iter().map(|w| say("warning", w));
    errors.chain(warnings).collect()
}

/// Place, key and text of a finding.
fn line(file: &Path, finding: &Finding) -> String {
    let Finding {
        line,
        column,
        key,
        text,
    } = finding;
    let key = match key.is_empty() {
        true => String::new(),
        false => format!("{key}: "),
    };
    format!("{}:{line}:{column}: {key}{text}", file.display())
}
