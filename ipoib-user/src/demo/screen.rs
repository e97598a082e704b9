//! Where a demo shows what it does: in place on a terminal, line by line elsewhere.

use super::measurement::Measurement;
use super::table;
use super::topology::{Place, Side, Topology};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The whole table, over the last one; for terminals of at least 80 by 24.
    InPlace,
    /// One line each time.
    Lines,
}

/// What a demo writes its progress to.
pub struct Screen<'a> {
    output: &'a mut (dyn Write + Send),
    style: Style,
    /// Lines of the table that stands above the cursor.
    drawn: usize,
    last: Measurement,
}

impl<'a> Screen<'a> {
    /// A screen over any output.
    pub fn new(output: &'a mut (dyn Write + Send), style: Style) -> Screen<'a> {
        Screen {
            output,
            style,
            drawn: 0,
            last: Measurement::default(),
        }
    }

    /// One line.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }

    /// What was built and how to look into it.
    pub fn introduce(&mut self, topology: &Topology, pin_root: &Path) -> io::Result<()> {
        let [fabric, ethernet] = topology.sides;
        for (what, side, is_host) in [
            (host(fabric), fabric, true),
            ("gateway".to_owned(), fabric, false),
            (String::new(), ethernet, false),
            (host(ethernet), ethernet, true),
        ] {
            let (port, ipv4, ipv6) = match is_host {
                true => (side.host_port, side.ipv4, side.ipv6),
                false => (side.gateway_port, side.gateway_ipv4, side.gateway_ipv6),
            };
            let (ipv4, ipv6) = (ipv4.to_string(), ipv6.to_string());
            self.say(&format!(
                "  {what:<18}{port:<6}{ipv4:<14}{ipv6:<14}MTU {}",
                side.mtu
            ))?;
        }
        self.say(match topology.place {
            Place::Made => {
                "ib0 is a veth with Ethernet framing here, as the demo needs no InfiniBand; on\n\
                 a real gateway the datapath learns from the device that frames are IPoIB's."
            }
            Place::Lab => {
                "ib0 and ib1 belong to the kernel's own IPoIB driver, on virtual InfiniBand HCAs:\n\
                 frames have 20-byte addresses, and the device itself says so."
            }
        })?;
        let names: Vec<String> = topology
            .namespaces()
            .map(|(role, namespace)| format!("{role}={}", namespace.name()))
            .into();
        self.say(&format!("namespaces: {}", names.join(" ")))?;
        let (gateway, pins) = (topology.gateway.name(), pin_root.display());
        self.say(&format!(
            "look inside while it runs:\n  \
             ip netns exec {gateway} ip -s link\n  \
             ip netns exec {gateway} bpftool net\n  \
             bpftool map dump pinned {pins}/v1/maps/counters"
        ))
    }

    /// The measurement as it is now.
    pub fn show(&mut self, now: Measurement, limit: Option<Duration>) -> io::Result<()> {
        match self.style {
            Style::Lines => self.say(&table::line(&now))?,
            Style::InPlace => {
                let lines = table::lines(&now, &self.last, limit);
                self.erase()?;
                for line in &lines {
                    writeln!(self.output, "{line}")?;
                }
                self.output.flush()?;
                self.drawn = lines.len();
            }
        }
        self.last = now;
        Ok(())
    }

    /// Takes the table away, for what comes after it.
    pub fn finish(&mut self) -> io::Result<()> {
        self.erase()?;
        self.output.flush()
    }

    /// Moves to the first line of the table (the column is 1 but for a `^C`) and clears from there.
    fn erase(&mut self) -> io::Result<()> {
        match self.drawn {
            0 => Ok(()),
            lines => {
                self.drawn = 0;
                write!(self.output, "\r\x1b[{lines}A\x1b[J")
            }
        }
    }
}

fn host(side: &Side) -> String {
    format!("{} {}", side.what, side.host)
}

#[cfg(test)]
mod tests {
    use super::super::measurement::tests::example;
    use super::*;

    fn shown(style: Style) -> String {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, style);
        screen.show(example(), None).unwrap();
        screen.show(example(), None).unwrap();
        screen.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn on_a_terminal_each_table_replaces_the_last() {
        let output = shown(Style::InPlace);
        let (first, rest) = output.split_once("\r\x1b[").unwrap();
        let height = first.lines().count();
        assert!(
            height > 10 && rest.starts_with(&format!("{height}A\x1b[J")),
            "{output}"
        );
        assert!(
            rest.ends_with(&format!("\r\x1b[{height}A\x1b[J")),
            "{output}"
        );
    }

    #[test]
    fn elsewhere_there_are_lines_and_no_escapes() {
        let output = shown(Style::Lines);
        assert_eq!(output.lines().count(), 2);
        assert!(!output.contains('\x1b'));
    }
}
