//! From text to [`File`]: every unknown key and every value of the wrong type becomes an error, and
//! the rest is read nevertheless.

use super::at::At;
use super::fields;
use super::findings::{Findings, Problem, join};
use super::model::{Class, Daemon, File, Peer, Policy, Port, Profile};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The sections of a file.
const SECTIONS: [&str; 7] = [
    "daemon", "ports", "groups", "classes", "policies", "peers", "profiles",
];
/// Wrong types reported in one entry: finding each costs a reading of the whole entry.
const MOST_WRONG_TYPES: usize = 100;

type Value<'i> = Spanned<DeValue<'i>>;

/// Reads a file. Where it is not TOML, only that is reported.
pub fn read(text: &str, findings: &mut Findings) -> File {
    let mut file = File::default();
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        findings.error(offset, "", Problem::Syntax(error.message().to_owned()));
    }
    if !errors.is_empty() {
        findings.broken = true;
        return file;
    }
    for (key, value) in root.into_inner() {
        let at = key.span().start;
        match key.get_ref().as_ref() {
            "daemon" => {
                file.daemon = Some(At {
                    offset: at,
                    value: entry::<Daemon>(value, "daemon", findings),
                });
            }
            "ports" => file.ports = named(value, "ports", findings, entry::<Port>),
            "groups" => file.groups = named(value, "groups", findings, group),
            "classes" => file.classes = named(value, "classes", findings, entry::<Class>),
            "policies" => file.policies = policies(value, "policies", findings),
            "peers" => file.peers = named(value, "peers", findings, entry::<Peer>),
            "profiles" => file.profiles = named(value, "profiles", findings, profile),
            other => unknown(findings, at, "", other, &SECTIONS),
        }
    }
    file
}

fn unknown(findings: &mut Findings, at: usize, parent: &str, key: &str, known: &[&str]) {
    let hint = findings.hint(key, known.iter().copied());
    let known = known.join(", ");
    findings.error(at, join(parent, key), Problem::UnknownKey { hint, known });
}

/// A section of named entries.
fn named<T>(
    value: Value,
    key: &str,
    findings: &mut Findings,
    read: fn(Value, &str, &mut Findings) -> T,
) -> BTreeMap<String, At<T>> {
    let Some(table) = table(value, key, findings) else {
        return BTreeMap::new();
    };
    let one = |(name, value): (Spanned<_>, _)| {
        let offset = name.span().start;
        let name: std::borrow::Cow<'_, str> = name.into_inner();
        let value = read(value, &join(key, &name), findings);
        (name.into_owned(), At { offset, value })
    };
    table.into_iter().map(one).collect()
}

fn table<'i>(value: Value<'i>, key: &str, findings: &mut Findings) -> Option<DeTable<'i>> {
    let offset = value.span().start;
    match value.into_inner() {
        DeValue::Table(table) => Some(table),
        other => {
            let got = kind(&other);
            let key = key.to_owned();
            findings.error(offset, key.clone(), Problem::NoTable { got, key });
            None
        }
    }
}

fn array<'i>(value: Value<'i>, key: &str, what: &str, findings: &mut Findings) -> Vec<Value<'i>> {
    let offset = value.span().start;
    match value.into_inner() {
        DeValue::Array(array) => array.into_iter().collect(),
        other => {
            let text = format!("{} is written here, {what} is expected", kind(&other));
            findings.error(offset, key, Problem::WrongType(text));
            Vec::new()
        }
    }
}

fn kind(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A group is a list of strings, each read alone: there may be very many.
fn group(value: Value, key: &str, findings: &mut Findings) -> Vec<At<String>> {
    if let DeValue::Array(list) = value.get_ref()
        && list.is_empty()
    {
        findings.error(value.span().start, key, Problem::Empty("a prefix"));
    }
    let mut texts = Vec::new();
    let list = array(value, key, "a list of prefixes", findings);
    for (index, value) in list.into_iter().enumerate() {
        let offset = value.span().start;
        match value.into_inner() {
            DeValue::String(text) => texts.push(At {
                offset,
                value: text.into_owned(),
            }),
            other => {
                let text = format!("{} is written here, a prefix is expected", kind(&other));
                findings.error(offset, format!("{key}[{index}]"), Problem::WrongType(text));
            }
        }
    }
    texts
}

fn policies(value: Value, key: &str, findings: &mut Findings) -> Vec<At<Policy>> {
    array(value, key, "a list of tables, [[policies]],", findings)
        .into_iter()
        .enumerate()
        .map(|(index, value)| At {
            offset: value.span().start,
            value: entry(value, &format!("{key}[{index}]"), findings),
        })
        .collect()
}

fn profile(value: Value, key: &str, findings: &mut Findings) -> Profile {
    let mut profile = Profile::default();
    for (name, value) in table(value, key, findings).unwrap_or_default() {
        match name.get_ref().as_ref() {
            "policies" => profile.policies = policies(value, &join(key, "policies"), findings),
            other => unknown(findings, name.span().start, key, other, &["policies"]),
        }
    }
    profile
}

/// An entry with fixed keys. What can't be read is reported and cut out, until the rest can.
fn entry<T: DeserializeOwned + Default>(value: Value, key: &str, findings: &mut Findings) -> T {
    let span = value.span();
    let Some(mut table) = table(value, key, findings) else {
        return T::default();
    };
    let known = fields::of::<T>();
    let is_unknown =
        |name: &Spanned<std::borrow::Cow<str>>| !known.contains(&name.get_ref().as_ref());
    let strangers: Vec<_> = table.keys().filter(|k| is_unknown(k)).cloned().collect();
    for name in strangers {
        unknown(findings, name.span().start, key, name.get_ref(), known);
        table.remove(name.get_ref().as_ref());
    }
    let mut value = DeValue::Table(table);
    // As it was before anything was cut, for the paths.
    let mut whole = None;
    for _ in 0..MOST_WRONG_TYPES {
        let input = Spanned::new(span.clone(), value.clone());
        let error = match T::deserialize(ValueDeserializer::from(input)) {
            Ok(entry) => return entry,
            Err(error) => error,
        };
        let wrong = error.span().unwrap_or(span.clone());
        let whole = whole.get_or_insert_with(|| value.clone());
        let path = locate(whole, &wrong, key.to_owned());
        let was_cut = cut(&mut value, &wrong);
        let text = error.message().trim_end().to_owned();
        findings.unread(wrong.start, path, text);
        if !was_cut {
            break;
        }
    }
    T::default()
}

/// The key of the innermost value around `span`, as a path below `key`.
fn locate(value: &DeValue, span: &Range<usize>, key: String) -> String {
    match value {
        DeValue::Table(table) => match table.iter().find(|(_, value)| is_around(value, span)) {
            Some((name, value)) => locate(value.get_ref(), span, join(&key, name.get_ref())),
            None => key,
        },
        DeValue::Array(array) => match array.iter().position(|value| is_around(value, span)) {
            Some(index) => locate(array[index].get_ref(), span, format!("{key}[{index}]")),
            None => key,
        },
        _ => key,
    }
}

/// Cuts the innermost value around `span` out.
fn cut(value: &mut DeValue, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => {
            let mut values = table.iter();
            let Some((key, _)) = values.find(|(_, value)| is_around(value, span)) else {
                return false;
            };
            let key = key.get_ref().clone();
            let inside = table
                .get_mut(key.as_ref())
                .is_some_and(|value| cut(value.get_mut(), span));
            inside || table.remove(key.as_ref()).is_some()
        }
        DeValue::Array(array) => {
            let Some(index) = array.iter().position(|value| is_around(value, span)) else {
                return false;
            };
            let inside = array
                .get_mut(index)
                .is_some_and(|value| cut(value.get_mut(), span));
            if !inside {
                let kept = array.iter().enumerate().filter(|(at, _)| *at != index);
                *array = kept.map(|(_, value)| value.clone()).collect();
            }
            true
        }
        _ => false,
    }
}

fn is_around(value: &Value, span: &Range<usize>) -> bool {
    value.span().start <= span.start && span.end <= value.span().end
}
