//! Rows: what the rounds of one plan come to, for programs, people and the raw record.

use super::plan::{Plan, Target};
use super::rounds::{Round, Sample};
use super::statistics::{self, Interval};
use serde::Serialize;
use std::fmt::Write;

/// Rounds from which on a row says whether its target is met.
pub const ROUNDS_TO_JUDGE: usize = 15;

/// One line of the result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// Unit of `ours` and `peer`.
    pub unit: &'static str,
    /// The datapath: median of its rounds.
    pub ours: f64,
    /// The peer: median of its rounds.
    pub peer: f64,
    /// Median of the rounds' ratios, ours / peer.
    pub ratio: f64,
    /// Lower end of the ratio's 95 % interval.
    pub low: f64,
    /// Upper end of the ratio's 95 % interval.
    pub high: f64,
    /// How many rounds were measured.
    pub rounds: usize,
    /// What the ratio is to be, if anything.
    pub target: Option<Target>,
    /// Whether the worse end of the interval meets the target; `None` where there is none, and of
    /// fewer than [`ROUNDS_TO_JUDGE`] rounds.
    pub met: Option<bool>,
}

impl Row {
    /// Sums up the rounds of `plan`; `None` for too few to have an interval.
    pub fn new(plan: &Plan, rounds: &[Round]) -> Option<Row> {
        let values = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        let Interval { median, low, high } = statistics::interval(&values(Round::ratio))?;
        let judged = plan.target.filter(|_| rounds.len() >= ROUNDS_TO_JUDGE);
        Some(Row {
            name: plan.name,
            unit: plan.unit,
            ours: statistics::median(&values(|round| round.ours.value))?,
            peer: statistics::median(&values(|round| round.peer.value))?,
            ratio: median,
            low,
            high,
            rounds: rounds.len(),
            target: plan.target,
            met: judged.map(|target| target.is_met_by(low)),
        })
    }
}

/// Rows as people read them.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let [name, ours, peer, unit, ratio, interval, target, met] = cells;
        let line = format!(
            "{name:<17} {ours:>10} {peer:>10} {unit:<10} {ratio:>6}  {interval:<15}  {target:<8} {met}"
        );
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line([
        "row",
        "ours",
        "peer",
        "unit",
        "ratio",
        "95 % interval",
        "target",
        "met",
    ]);
    for row in rows {
        let target = row
            .target
            .map_or("-".to_owned(), |t| format!("{} {}", t.op.sign(), t.value));
        let met = match (row.target, row.met) {
            (None, _) => "-".to_owned(),
            (_, Some(true)) => "yes".to_owned(),
            (_, Some(false)) => "NO".to_owned(),
            (_, None) => format!("not judged ({} rounds)", row.rounds),
        };
        line([
            row.name,
            &figure(row.ours),
            &figure(row.peer),
            row.unit,
            &format!("{:.3}", row.ratio),
            &format!("{:.3} .. {:.3}", row.low, row.high),
            &target,
            &met,
        ]);
    }
    text
}

/// Four digits are more than one machine can repeat.
fn figure(value: f64) -> String {
    match value {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// First line of the raw record; [`raw`] writes the others.
pub const RAW_HEADER: &str = "row,round,position,side,value,unit,seconds,sent,received\n";

/// Both measurements of each round of a row, in the order in which they were made: `round` from 1,
/// `position` 1 or 2 in it, `sent` and `received` in packets, bytes or runs.
pub fn raw(plan: &Plan, rounds: &[Round]) -> String {
    let mut text = String::new();
    for (index, round) in rounds.iter().enumerate() {
        for (position, side) in round.sides().into_iter().enumerate() {
            let Sample {
                value,
                seconds,
                sent,
                received,
            } = round.of(side);
            writeln!(
                text,
                "{},{},{},{},{value},{},{seconds},{sent},{received}",
                plan.name,
                index + 1,
                position + 1,
                side.name(),
                plan.unit
            )
            .expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::forwarder::Side;
    use super::super::plan::PLANS;
    use super::*;
    use serde_json::json;

    fn rounds(ratios: &[f64]) -> Vec<Round> {
        let sample = |value| Sample {
            value,
            seconds: 0.5,
            sent: 100,
            received: 99,
        };
        let round = |(index, &ratio): (usize, &f64)| Round {
            first: [Side::Ours, Side::Peer][index % 2],
            ours: sample(ratio * 8.0),
            peer: sample(8.0),
        };
        ratios.iter().enumerate().map(round).collect()
    }

    fn plan(name: &str) -> &'static Plan {
        PLANS.iter().find(|plan| plan.name == name).unwrap()
    }

    #[test]
    fn a_row_has_the_agreed_shape() {
        let ratios: Vec<f64> = (0..15).map(|n| 1.0 + f64::from(n) / 8.0).collect();
        let row = Row::new(plan("forward_pps_ipv6"), &rounds(&ratios)).unwrap();
        assert_eq!(
            serde_json::to_value(&row).unwrap(),
            json!({
                "name": "forward_pps_ipv6", "unit": "packets/s", "ours": 15.0, "peer": 8.0,
                "ratio": 1.875, "low": 1.375, "high": 2.375, "rounds": 15,
                "target": { "op": ">=", "value": 1.0 }, "met": true
            })
        );
        let row = Row::new(plan("program_ns_ipv4"), &rounds(&ratios)).unwrap();
        let row = serde_json::to_value(&row).unwrap();
        assert!(row["target"].is_null() && row["met"].is_null());
    }

    #[test]
    fn the_worse_end_of_the_interval_decides() {
        let tcp = plan("forward_tcp_ipv4");
        let with_low = |low: f64| {
            let mut ratios = [1.2; 15];
            ratios[..4].fill(low);
            Row::new(tcp, &rounds(&ratios)).unwrap().met
        };
        assert_eq!(with_low(1.0), Some(true));
        assert_eq!(with_low(0.95), Some(false), "the target is above 0.95");
        assert_eq!(with_low(0.9), Some(false), "though the median is 1.2");
        let pps = plan("forward_pps_ipv4");
        assert_eq!(Row::new(pps, &rounds(&[1.0; 15])).unwrap().met, Some(true));
    }

    #[test]
    fn few_rounds_are_not_judged_and_fewer_are_no_row() {
        let pps = plan("forward_pps_ipv4");
        let row = Row::new(pps, &rounds(&[2.0; 14])).unwrap();
        assert_eq!((row.rounds, row.met), (14, None));
        assert!(table(&[row]).contains("not judged (14 rounds)"));
        assert_eq!(Row::new(pps, &rounds(&[2.0; 5])), None);
    }

    #[test]
    fn the_table_has_a_line_a_row() {
        let rows = ["forward_tcp_ipv4", "program_ns_ipv6"]
            .map(|name| Row::new(plan(name), &rounds(&[0.5; 15])).unwrap());
        assert_eq!(
            table(&rows),
            "row                     ours       peer unit        ratio  95 % interval    target   met\n\
             forward_tcp_ipv4        4.00       8.00 Gbit/s      0.500  0.500 .. 0.500   > 0.95   NO\n\
             program_ns_ipv6         4.00       8.00 ns          0.500  0.500 .. 0.500   -        -\n"
        );
    }

    #[test]
    fn raw_rows_are_in_the_order_of_measuring() {
        assert_eq!(
            raw(plan("forward_tcp_ipv6"), &rounds(&[0.5, 2.0])),
            "forward_tcp_ipv6,1,1,ours,4,Gbit/s,0.5,100,99\n\
             forward_tcp_ipv6,1,2,peer,8,Gbit/s,0.5,100,99\n\
             forward_tcp_ipv6,2,1,peer,8,Gbit/s,0.5,100,99\n\
             forward_tcp_ipv6,2,2,ours,16,Gbit/s,0.5,100,99\n"
        );
        assert_eq!(RAW_HEADER.split(',').count(), 9);
    }
}
