//! Packet rate: an XDP program that the kernel runs on its own frames puts packets into the
//! gateway's stack as if n1's port had received them, and another one counts them at n2's port.

use super::Error;
use super::cpu::on_one_cpu;
use super::forwarder::{Forwarder, Side};
use super::packet::{self, FLOWS, Packet};
use super::plan::Plan;
use super::raw_program::{self, Counter, Instruction, Kind, Register, Width};
use super::rounds::{Experiment, Sample};
use crate::demo::topology::{ETHERNET, FABRIC, Topology};
use nix::net::if_::if_nametoindex;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Packets of the run that finds out how many make a measurement.
const FIRST: u32 = 50_000;
/// A measurement takes so many times the time of others: generator and forwarding share a CPU in
/// turns of a tick, 4 ms at HZ=250, which are to be a small part of it.
const LONGER: f64 = 4.0;
/// How long the last packets may be on their way.
const GRACE: Duration = Duration::from_millis(100);
const HOP_LIMIT: u8 = 64;

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
/// `BPF_FUNC_get_prandom_u32`.
const RANDOM: u32 = 7;

/// Sends packets from n1's side and counts what reaches n2.
pub struct Packets {
    plan: Plan,
    pin_root: PathBuf,
    time: Duration,
    generator: OwnedFd,
    frame: Vec<u8>,
    ifindex: u32,
    arrived: Counter,
    repeat: Option<u32>,
    _sink: OwnedFd,
}

impl Packets {
    /// Loads the generator and puts the counting program on n2's port. To be called in the
    /// gateway's namespace.
    pub fn new(
        plan: &Plan,
        topology: &Topology,
        pin_root: PathBuf,
        time: Duration,
    ) -> Result<Packets, Error> {
        let sent = packet::sent(plan.family, HOP_LIMIT);
        let expected = packet::forwarded(plan.family, HOP_LIMIT);
        let arrived = Counter::new().map_err(Error::system("making a counter"))?;
        let load = |name, instructions: &[Instruction]| {
            raw_program::load(Kind::Xdp, name, instructions)
                .map_err(Error::system(format!("loading the program {name}")))
        };
        let generator = load("bench_generator", &generator(&sent))?;
        let sink = load("bench_sink", &sink(&expected, &arrived))?;
        let sink = topology.n2.run(|| {
            raw_program::attach_xdp(&sink, ifindex(ETHERNET.host_port)?).map_err(Error::system(
                format!("attaching to {}", ETHERNET.host_port),
            ))
        })??;
        Ok(Packets {
            plan: *plan,
            pin_root,
            time,
            generator,
            frame: sent.frame,
            ifindex: ifindex(FABRIC.gateway_port)?,
            arrived,
            repeat: None,
            _sink: sink,
        })
    }

    fn send(&self, repeat: u32) -> Result<Sample, Error> {
        let arrived = || {
            self.arrived
                .value()
                .map_err(Error::system("reading a counter"))
        };
        let before = arrived()?;
        let began = Instant::now();
        raw_program::live_frames(&self.generator, &self.frame, self.ifindex, repeat)
            .map_err(Error::system("sending live frames (Linux 5.18 or newer)"))?;
        let sent = u64::from(repeat);
        let (mut received, mut took) = (arrived()? - before, began.elapsed());
        let patience = Instant::now() + GRACE;
        while received < sent && Instant::now() < patience {
            sleep(Duration::from_millis(1));
            let now = arrived()? - before;
            if now != received {
                (received, took) = (now, began.elapsed());
            }
        }
        Ok(Sample {
            value: received as f64 / took.as_secs_f64(),
            seconds: took.as_secs_f64(),
            sent,
            received,
        })
    }
}

impl Experiment for Packets {
    fn measure(&mut self, side: Side) -> Result<Sample, Error> {
        let forwarder = Forwarder::start(side, &self.plan, &self.pin_root)?;
        let repeat = self.repeat.unwrap_or(FIRST);
        let sample = on_one_cpu(|| self.send(repeat))??;
        forwarder.carried_exactly(sample.sent)?;
        if self.repeat.is_none() {
            let enough = sample.value * self.time.as_secs_f64() * LONGER;
            self.repeat = Some((enough as u32).max(FIRST));
        }
        Ok(sample)
    }
}

fn ifindex(name: &str) -> Result<u32, Error> {
    if_nametoindex(name)
        .map_err(|errno| Error::system(format!("finding interface {name}"))(errno.into()))
}

/// Writes the headers of a packet of a random flow over its frame and passes it on.
///
/// All of them each time: a frame is used again, with what forwarding made of it.
fn generator(packet: &Packet) -> Vec<Instruction> {
    use Instruction as I;
    use Register::*;
    use Width::*;
    // In memory, whatever the order of bytes.
    let flows = u32::from(u16::from_ne_bytes((FLOWS - 1).to_be_bytes()));
    let mut program = vec![
        I::copy(R6, R1),
        I::call(RANDOM),
        I::load(Word, R2, R6, 0),
        I::load(Word, R3, R6, 4),
        I::copy(R4, R2),
        I::add(R4, packet.header_len as i32),
    ];
    let mut write: Vec<I> = chunks(packet)
        .map(|(at, width, bytes)| I::store(width, R2, at as i16, bytes))
        .collect();
    write.extend([
        I::and(R0, flows),
        I::store_register(Half, R2, packet.number_at as i16, R0),
        I::xor(R0, u32::from(u16::MAX)),
    ]);
    write.extend(
        packet
            .complement_at
            .iter()
            .map(|&at| I::store_register(Half, R2, at as i16, R0)),
    );
    program.push(I::skip_if_greater(R4, R3, write.len() as i16));
    program.extend(write);
    program.extend([I::set(R0, XDP_PASS), I::exit()]);
    program
}

/// Counts and drops a packet of any flow whose length and headers are as expected, and passes every
/// other.
fn sink(expected: &Packet, counter: &Counter) -> Vec<Instruction> {
    use Instruction as I;
    use Register::*;
    use Width::*;
    // Forward jumps are counted once it is known how far away the end is.
    let mut checks: Vec<Box<dyn Fn(i16) -> I>> = Vec::new();
    let mut program = vec![
        I::load(Word, R2, R1, 0),
        I::load(Word, R3, R1, 4),
        I::copy(R4, R2),
        I::add(R4, expected.frame.len() as i32),
    ];
    let len = program.len();
    checks.push(Box::new(|end| I::skip_if_different(R4, R3, end)));
    checks.push(Box::new(|end| I::skip_if_greater(R4, R3, end)));
    for (at, width, bytes) in chunks(expected) {
        let mut mask = [0; 4];
        for (index, byte) in mask.iter_mut().enumerate().take(width.bytes()) {
            *byte = if expected.varies_at(at + index) {
                0
            } else {
                0xff
            };
        }
        let mask = value(&mask[..width.bytes()]);
        checks.push(Box::new(move |_| I::load(width, R0, R2, at as i16)));
        checks.push(Box::new(move |_| I::and(R0, mask)));
        checks.push(Box::new(move |end| I::skip_unless(R0, bytes & mask, end)));
    }
    let mut count = I::address(R1, counter).to_vec();
    count.extend([
        I::set(R2, 1),
        I::add_to_memory(R1, R2),
        I::set(R0, XDP_DROP),
        I::exit(),
    ]);
    let end = len + checks.len() + count.len();
    for check in checks {
        let next = program.len() + 1;
        program.push(check((end - next) as i16));
    }
    program.extend(count);
    program.extend([I::set(R0, XDP_PASS), I::exit()]);
    program
}

/// The headers as the machine stores them: offset, width, and the value in its order of bytes.
fn chunks(packet: &Packet) -> impl Iterator<Item = (usize, Width, u32)> {
    let headers = &packet.frame[..packet.header_len];
    headers
        .chunks(Width::Word.bytes())
        .enumerate()
        .map(|(index, bytes)| {
            let width = match bytes.len() {
                4 => Width::Word,
                _ => Width::Half,
            };
            (index * Width::Word.bytes(), width, value(bytes))
        })
}

/// What a load of these two or four bytes yields.
fn value(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        [a, b] => u32::from(u16::from_ne_bytes([a, b])),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Family;
    use std::collections::HashSet;
    use std::os::fd::AsFd;

    fn load(instructions: &[Instruction]) -> OwnedFd {
        raw_program::load(Kind::Xdp, "bench_test", instructions).expect("needs root")
    }

    fn run(program: &OwnedFd, frame: &[u8]) -> (i32, Vec<u8>) {
        let outcome = raw_program::test_run(program.as_fd(), frame, None, 1).unwrap();
        (outcome.action, outcome.frame)
    }

    #[test]
    fn the_generator_writes_a_packet_of_some_flow_whatever_was_there() {
        for family in Family::ALL {
            let packet = packet::sent(family, HOP_LIMIT);
            let program = load(&generator(&packet));
            let mut flows = HashSet::new();
            for fill in [0x00, 0xff].repeat(20) {
                let mut used = packet.clone();
                used.frame[..packet.header_len].fill(fill);
                let (action, frame) = run(&program, &used.frame);
                let number = [frame[packet.number_at], frame[packet.number_at + 1]];
                let number = u16::from_be_bytes(number);
                assert_eq!((action, frame), (XDP_PASS, packet.of_flow(number)));
                flows.insert(number);
            }
            assert!(flows.len() > 1 && flows.iter().all(|&number| number < FLOWS));
            assert_eq!(
                run(&program, &packet.frame[..packet.header_len - 1]).0,
                XDP_PASS
            );
        }
    }

    #[test]
    fn the_sink_counts_what_was_forwarded_right_and_nothing_else() {
        for family in Family::ALL {
            let (right, sent) = (
                packet::forwarded(family, HOP_LIMIT),
                packet::sent(family, HOP_LIMIT),
            );
            let counter = Counter::new().expect("needs root");
            let program = load(&sink(&right, &counter));
            for flow in [0, 1, FLOWS - 1] {
                assert_eq!(run(&program, &right.of_flow(flow)).0, XDP_DROP);
            }
            assert_eq!(counter.value().unwrap(), 3);

            let varies = |at| right.varies_at(at);
            for at in (0..right.header_len).filter(|&at| !varies(at)) {
                let mut wrong = right.frame.clone();
                wrong[at] ^= 0x10;
                assert_eq!(run(&program, &wrong).0, XDP_PASS, "byte {at}");
            }
            let mut long = right.frame.clone();
            long.push(0);
            let short = &right.frame[..right.frame.len() - 1];
            for wrong in [&sent.frame[..], &long, short] {
                assert_eq!(run(&program, wrong).0, XDP_PASS);
            }
            assert_eq!(counter.value().unwrap(), 3);
        }
    }
}
