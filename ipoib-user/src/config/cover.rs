//! Policies that no packet reaches, because one earlier policy matches all that they match.
//!
//! Bounded, so that 100,000 policies take seconds: two questions are asked about each.
//! - By look-up, at any distance: is there an earlier policy whose every condition is the same, is
//!   missing, or names a group around this one's (of at most 16 tried)? At most 1,024 look-ups.
//! - By comparison, which knows ranges of ports too: the first 64 earlier policies of the same (or
//!   wider, or no) groups, at most 256 in all.
//!
//! So a warning is always right, but not every such policy is found; nor are those that several
//! earlier ones cover together.

use super::at::At;
use super::findings::{Findings, Problem};
use super::groups::Groups;
use super::model::Policy;
use super::policies::Match;
use std::collections::HashMap;

const MOST_LOOKUPS: usize = 1024;
const MOST_COMPARED: usize = 256;
const MOST_OF_ONE_PAIR: usize = 64;

/// Warns of policies that an earlier one covers.
pub fn check(
    groups: &Groups,
    key: &str,
    policies: &[At<Policy>],
    matches: &[Match],
    findings: &mut Findings,
) {
    let mut earlier = Earlier::default();
    for (index, (policy, matched)) in policies.iter().zip(matches).enumerate() {
        let found = earlier.covering(groups, matched, matches);
        if let Some(by) = found.and_then(|by| policies.get(by)) {
            let problem = Problem::Covered {
                name: by
                    .value
                    .name
                    .as_ref()
                    .map_or_else(String::new, |n| n.value.clone()),
                line: findings.line(by.offset),
            };
            findings.warning(policy.offset, format!("{key}[{index}]"), problem);
        } else if !matched.sometimes {
            // What is covered, and what holds only at times, covers nothing more.
            earlier.add(index, matched);
        }
    }
}

type Groupings = (Option<usize>, Option<usize>);

#[derive(Default)]
struct Earlier {
    same: HashMap<Match, usize>,
    pairs: HashMap<Groupings, Vec<usize>>,
}

impl Earlier {
    fn add(&mut self, index: usize, matched: &Match) {
        self.same.entry(matched.clone()).or_insert(index);
        let pair = self.pairs.entry((matched.from, matched.to)).or_default();
        if pair.len() < MOST_OF_ONE_PAIR {
            pair.push(index);
        }
    }

    fn covering(&self, groups: &Groups, matched: &Match, matches: &[Match]) -> Option<usize> {
        if self.same.is_empty() {
            return None;
        }
        let around = |group: Option<usize>| {
            let mut wider = vec![None];
            wider.extend(
                group
                    .map(|g| groups.around(g))
                    .unwrap_or_default()
                    .into_iter()
                    .map(Some),
            );
            wider
        };
        let (from, to) = (around(matched.from), around(matched.to));
        let mut lookups = 0;
        let mut compared = 0;
        for from in &from {
            for to in &to {
                let Some(pair) = self.pairs.get(&(*from, *to)) else {
                    continue;
                };
                for index in pair {
                    if compared == MOST_COMPARED {
                        break;
                    }
                    compared += 1;
                    if covers(&matches[*index], matched) {
                        return Some(*index);
                    }
                }
                // A pair that was not cut short has been compared whole.
                if pair.len() < MOST_OF_ONE_PAIR && compared < MOST_COMPARED {
                    continue;
                }
                for wider in widened(matched, *from, *to) {
                    if lookups == MOST_LOOKUPS {
                        return None;
                    }
                    lookups += 1;
                    if let Some(index) = self.same.get(&wider) {
                        return Some(*index);
                    }
                }
            }
        }
        None
    }
}

/// The match without each choice of its conditions, between those groups.
fn widened(matched: &Match, from: Option<usize>, to: Option<usize>) -> Vec<Match> {
    let start = Match {
        from,
        to,
        sometimes: false,
        ..matched.clone()
    };
    let mut all = vec![start];
    let mut without = |given: bool, clear: fn(&mut Match)| {
        if given {
            for index in 0..all.len() {
                let mut wider = all[index].clone();
                clear(&mut wider);
                all.push(wider);
            }
        }
    };
    without(matched.protocol.is_some(), |m| m.protocol = None);
    without(matched.ports.is_some(), |m| m.ports = None);
    without(matched.source_ports.is_some(), |m| m.source_ports = None);
    without(matched.dscp.is_some(), |m| m.dscp = None);
    without(matched.ingress.is_some(), |m| m.ingress = None);
    without(matched.tenant.is_some(), |m| m.tenant = None);
    all
}

/// Whether `one` matches all that `other` matches, groups apart.
fn covers(one: &Match, other: &Match) -> bool {
    fn same<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
        one.is_none() || one == other
    }
    let holds = |one: &Option<Vec<(u16, u16)>>, other: &Option<Vec<(u16, u16)>>| match (one, other)
    {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(one), Some(other)) => other.iter().all(|(first, last)| {
            let at = one.partition_point(|range| range.0 <= *first);
            at > 0 && one[at - 1].1 >= *last
        }),
    };
    same(&one.protocol, &other.protocol)
        && holds(&one.ports, &other.ports)
        && holds(&one.source_ports, &other.source_ports)
        && same(&one.dscp, &other.dscp)
        && same(&one.ingress, &other.ingress)
        && same(&one.tenant, &other.tenant)
}
