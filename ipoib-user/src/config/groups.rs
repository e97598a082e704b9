//! Groups of prefixes: read, checked, and asked which of them lies within which.

use super::at::At;
use super::check::{MAX_PREFIXES, check_name, too_many};
use super::findings::{Findings, Problem, join};
use super::values::{Family, Prefix};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most groups that are tried for containing another, and most that are remembered of them.
const MOST_TRIED: usize = 16;

/// The groups of a file, by number in the order of their names.
pub struct Groups<'a> {
    numbers: HashMap<&'a str, usize>,
    groups: Vec<HashSet<Prefix>>,
    /// Which families each group has: every policy asks.
    families: Vec<[bool; 2]>,
    /// Which groups have a prefix.
    holders: HashMap<Prefix, Vec<usize>>,
    /// The lengths that prefixes have, by family: no other is looked for.
    lengths: [BTreeSet<u8>; 2],
    /// What [`Groups::around`] has found already.
    around: RefCell<HashMap<usize, Vec<usize>>>,
}

impl<'a> Groups<'a> {
    /// Reads and checks the groups of a file.
    pub fn read(file: &'a BTreeMap<String, At<Vec<At<String>>>>, findings: &mut Findings) -> Self {
        let mut groups = Groups {
            numbers: HashMap::new(),
            groups: Vec::new(),
            families: Vec::new(),
            holders: HashMap::new(),
            lengths: Default::default(),
            around: RefCell::default(),
        };
        let total = file.values().map(|group| group.value.len()).sum();
        if let Some(first) = file.values().map(|group| group.offset).min() {
            too_many("prefixes", total, MAX_PREFIXES, first, findings);
        }
        for (name, At { offset, value }) in file {
            let key = join("groups", name);
            check_name(name, *offset, &key, findings);
            let number = groups.groups.len();
            groups.numbers.insert(name, number);
            groups.groups.push(HashSet::new());
            groups.families.push([false; 2]);
            for (index, text) in value.iter().enumerate() {
                let place = || format!("{key}[{index}]");
                match Prefix::parse(&text.value) {
                    Err(problem) => findings.error(text.offset, place(), problem),
                    Ok(prefix) if !groups.add(number, prefix) => {
                        let problem = Problem::DuplicatePrefix(prefix.to_string());
                        findings.warning(text.offset, place(), problem);
                    }
                    Ok(_) => {}
                }
            }
        }
        groups
    }

    fn add(&mut self, number: usize, prefix: Prefix) -> bool {
        let new = self.groups[number].insert(prefix);
        if new {
            self.holders.entry(prefix).or_default().push(number);
            self.families[number][prefix.family as usize] = true;
            self.lengths[prefix.family as usize].insert(prefix.length);
        }
        new
    }

    /// A group's number.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// Whether the group has prefixes of that family.
    pub fn has(&self, number: usize, family: Family) -> bool {
        self.families[number][family as usize]
    }

    /// Groups that certainly contain this one, itself first: at most [`MOST_TRIED`] others are tried.
    pub fn around(&self, number: usize) -> Vec<usize> {
        if let Some(found) = self.around.borrow().get(&number) {
            return found.clone();
        }
        let mut found = vec![number];
        if let Some(first) = self.groups[number].iter().min() {
            let candidates = self
                .widenings(*first)
                .filter_map(|prefix| self.holders.get(&prefix))
                .flatten()
                .filter(|group| **group != number);
            let mut tried = BTreeSet::new();
            for candidate in candidates {
                if tried.len() == MOST_TRIED {
                    break;
                }
                if tried.insert(*candidate) && self.contains(*candidate, number) {
                    found.push(*candidate);
                }
            }
        }
        self.around.borrow_mut().insert(number, found.clone());
        found
    }

    /// Whether each prefix of `inner` lies within one of `outer`.
    fn contains(&self, outer: usize, inner: usize) -> bool {
        let outer = &self.groups[outer];
        self.groups[inner]
            .iter()
            .all(|prefix| self.widenings(*prefix).any(|wide| outer.contains(&wide)))
    }

    /// The prefix and those around it, as far as any group has one of that length.
    fn widenings(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> {
        self.lengths[prefix.family as usize]
            .range(..=prefix.length)
            .map(move |length| prefix.widened(*length))
    }
}
