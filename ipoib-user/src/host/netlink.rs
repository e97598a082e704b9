//! One question to the kernel over a netlink socket of the calling thread's network namespace, and
//! its whole answer. Attributes are read by hand and leniently: a kernel newer than this program
//! may lengthen or add any of them, and one unreadable attribute must not cost the message.

use super::Error;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::thread;
use std::time::Duration;

/// `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER_LEN: usize = 16;
/// Sequence number of the only question that a socket carries.
const SEQUENCE: u32 = 1;
/// The type bits of an attribute's type field (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
/// `NLM_F_CAPPED`: an error does not repeat the question's body.
const NLM_F_CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: an error carries attributes.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's words.
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Readings that a change may interrupt before we give up.
const ATTEMPTS: u32 = 10;
/// Dumps arrive in pieces of at most 32 KiB, unless one object alone is larger.
const BUFFER_LEN: usize = 64 * 1024;

/// What to ask.
pub(super) struct Question<'a> {
    /// `NETLINK_*`.
    pub protocol: isize,
    /// What is read, for errors ("the links").
    pub what: &'static str,
    /// Message type of the question.
    pub ask: u16,
    /// Message type of the answers; others are skipped.
    pub answer: u16,
    /// Whether the answer is a dump (many messages) or one message.
    pub dump: bool,
    /// Family header and attributes.
    pub body: &'a [u8],
}

impl Question<'_> {
    fn failed(&self, source: io::Error) -> Error {
        Error::Netlink {
            what: self.what,
            source,
            text: None,
        }
    }

    fn message(&self) -> Vec<u8> {
        let flags = match self.dump {
            true => libc::NLM_F_REQUEST | libc::NLM_F_DUMP,
            false => libc::NLM_F_REQUEST,
        };
        let mut message = Vec::with_capacity(HEADER_LEN + self.body.len());
        message.extend(((HEADER_LEN + self.body.len()) as u32).to_ne_bytes());
        message.extend(self.ask.to_ne_bytes());
        message.extend((flags as u16).to_ne_bytes());
        message.extend(SEQUENCE.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(self.body);
        message
    }
}

/// Asks, and hands the body of each answer to `read`; what that returns is collected. A dump that a
/// change interrupted is asked for again.
pub(super) fn ask<T>(
    question: &Question,
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let mut buffer = vec![0; BUFFER_LEN];
    for attempt in 0..ATTEMPTS {
        // Whoever changes the host at this moment is given time to finish.
        thread::sleep(Duration::from_millis(attempt as u64));
        if let Some(items) = ask_once(question, &mut buffer, &mut read)? {
            return Ok(items);
        }
    }
    Err(Error::Unsettled {
        what: question.what,
    })
}

/// Like [`ask`]; a kernel without the subsystem has nothing of it.
pub(super) fn ask_if_present<T>(
    question: &Question,
    read: impl FnMut(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    match ask(question, read) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        result => result,
    }
}

/// One reading; `None` where it has to be repeated. Each has a socket of its own, so that nothing
/// of an abandoned dump is left in it.
fn ask_once<T>(
    question: &Question,
    buffer: &mut Vec<u8>,
    read: &mut impl FnMut(&[u8]) -> Option<T>,
) -> Result<Option<Vec<T>>, Error> {
    let socket = Socket::new(question.protocol).map_err(|e| question.failed(e))?;
    // Only for the words in errors; kernels before 4.12 have neither.
    let _ = socket.set_ext_ack(true);
    let _ = socket.set_cap_ack(true);
    let kernel = SocketAddr::new(0, 0);
    retry(|| socket.send_to(&question.message(), &kernel, 0)).map_err(|e| question.failed(e))?;

    let mut items = Vec::new();
    let mut interrupted = false;
    loop {
        let received = retry(|| socket.recv_from(&mut &mut buffer[..], libc::MSG_TRUNC));
        let (len, sender) = match received {
            Ok(received) => received,
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => return Ok(None),
            Err(e) => return Err(question.failed(e)),
        };
        // Any process may send to a netlink socket; the kernel's port is 0.
        if sender.port_number() != 0 {
            continue;
        }
        if len > buffer.len() {
            buffer.resize(len.next_power_of_two(), 0);
            return Ok(None);
        }
        let step = walk(&buffer[..len], question, &mut interrupted, |body| {
            items.extend(read(body));
        });
        match step {
            Step::More => {}
            Step::Done if interrupted => return Ok(None),
            Step::Done => return Ok(Some(items)),
            Step::Refused { errno, text } => {
                return Err(Error::Netlink {
                    what: question.what,
                    source: io::Error::from_raw_os_error(errno),
                    text,
                });
            }
        }
    }
}

/// Repeats a system call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// How an answer goes on.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// With another datagram.
    More,
    /// It is complete.
    Done,
    /// The kernel refused.
    Refused {
        /// Positive.
        errno: i32,
        /// The kernel's words.
        text: Option<String>,
    },
}

/// Reads one datagram of an answer.
fn walk(
    mut datagram: &[u8],
    question: &Question,
    interrupted: &mut bool,
    mut each: impl FnMut(&[u8]),
) -> Step {
    while let Some((message, rest)) = split_message(datagram) {
        datagram = rest;
        if message.sequence != SEQUENCE {
            continue;
        }
        *interrupted |= message.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
        match message.kind as i32 {
            // Both begin with 0 or a negative errno; a dump that fails midway says so in its end.
            kind @ (libc::NLMSG_ERROR | libc::NLMSG_DONE) => {
                let code = i32_at(message.body, 0).unwrap_or(0);
                if code >= 0 {
                    return Step::Done;
                }
                return Step::Refused {
                    errno: code.saturating_neg(),
                    text: words(&message, kind == libc::NLMSG_ERROR),
                };
            }
            kind if kind == question.answer as i32 => {
                each(message.body);
                if !question.dump {
                    return Step::Done;
                }
            }
            _ => {}
        }
    }
    Step::More
}

/// The extended acknowledgement of an error: after the code and, in `NLMSG_ERROR`, the question's
/// header and perhaps its body.
fn words(message: &Message, repeats_question: bool) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let mut at = 4;
    if repeats_question {
        at += match message.flags & NLM_F_CAPPED {
            0 => align(u32_at(message.body, 4)? as usize),
            _ => HEADER_LEN,
        };
    }
    attributes(message.body.get(at..)?)
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, value)| string(value))
}

/// A message without its header.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The first message of a datagram and what follows it; `None` where no whole message is left.
fn split_message(datagram: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let len = u32_at(datagram, 0)? as usize;
    let message = Message {
        kind: u16_at(datagram, 4)?,
        flags: u16_at(datagram, 6)?,
        sequence: u32_at(datagram, 8)?,
        body: datagram.get(HEADER_LEN..len)?,
    };
    let rest = datagram.get(align(len)..).unwrap_or(&[]);
    Some((message, rest))
}

/// The attributes (`struct nlattr`: length, type, value, padded to 4 bytes) in `bytes`: type without
/// its flag bits, and value. Ends at the first one that is cut off.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u16_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(align(len)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// The attributes behind a family header of `header_len` bytes; none where it is cut off.
pub(super) fn attributes_after(
    body: &[u8],
    header_len: usize,
) -> impl Iterator<Item = (u16, &[u8])> {
    attributes(body.get(header_len..).unwrap_or(&[]))
}

/// Appends an attribute.
pub(super) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(align(message.len()), 0);
}

fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Text up to its NUL.
pub(super) fn string(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// `N` bytes at an offset.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A number in host byte order.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

/// A number in host byte order.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

/// A number in network byte order, as nfnetlink writes them.
pub(super) fn be32(value: &[u8]) -> Option<u32> {
    bytes_at(value, 0).map(u32::from_be_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes_at(bytes, at).map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question {
        protocol: 0,
        what: "the links",
        ask: 18,
        answer: 16,
        dump: true,
        body: &[],
    };

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(((HEADER_LEN + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        message.resize(align(message.len()), 0);
        message
    }

    fn walked(datagram: &[u8]) -> (Step, bool, Vec<Vec<u8>>) {
        let (mut interrupted, mut bodies) = (false, Vec::new());
        let step = walk(datagram, &QUESTION, &mut interrupted, |b| {
            bodies.push(b.to_vec())
        });
        (step, interrupted, bodies)
    }

    #[test]
    fn a_dump_ends_with_its_done_message() {
        let mut datagram = message(16, libc::NLM_F_MULTI as u16, SEQUENCE, b"one");
        datagram.extend(message(16, libc::NLM_F_MULTI as u16, SEQUENCE, b"two!"));
        let bodies = vec![b"one".to_vec(), b"two!".to_vec()];
        assert_eq!(walked(&datagram), (Step::More, false, bodies.clone()));
        datagram.extend(message(3, 0, SEQUENCE, &0i32.to_ne_bytes()));
        assert_eq!(walked(&datagram), (Step::Done, false, bodies));
    }

    #[test]
    fn answers_to_another_question_and_of_another_type_are_skipped() {
        let mut datagram = message(16, 0, SEQUENCE + 1, b"late");
        datagram.extend(message(17, 0, SEQUENCE, b"other"));
        assert_eq!(walked(&datagram), (Step::More, false, vec![]));
    }

    #[test]
    fn an_interrupted_dump_is_noticed_in_any_of_its_messages() {
        let flag = libc::NLM_F_DUMP_INTR as u16;
        let mut datagram = message(16, flag, SEQUENCE, b"one");
        datagram.extend(message(3, 0, SEQUENCE, &0i32.to_ne_bytes()));
        assert_eq!(walked(&datagram), (Step::Done, true, vec![b"one".to_vec()]));
        let done = message(3, flag, SEQUENCE, &0i32.to_ne_bytes());
        assert_eq!(walked(&done), (Step::Done, true, vec![]));
    }

    #[test]
    fn an_error_carries_the_kernels_words_with_and_without_the_question() {
        let mut capped = (-libc::EPERM).to_ne_bytes().to_vec();
        capped.extend(message(18, 0, SEQUENCE, &[]));
        let mut whole = (-libc::EPERM).to_ne_bytes().to_vec();
        whole.extend(message(18, 0, SEQUENCE, &[0; 17]));
        for (flags, mut body) in [(NLM_F_CAPPED, capped), (0, whole)] {
            push_attribute(&mut body, 99, b"unknown");
            push_attribute(&mut body, NLMSGERR_ATTR_MSG, b"no way\0");
            let refused = |text: Option<&str>| Step::Refused {
                errno: libc::EPERM,
                text: text.map(str::to_owned),
            };
            let with = message(2, flags | NLM_F_ACK_TLVS, SEQUENCE, &body);
            assert_eq!(walked(&with).0, refused(Some("no way")));
            let without = message(2, flags, SEQUENCE, &body);
            assert_eq!(walked(&without).0, refused(None));
        }
    }

    #[test]
    fn a_dump_that_fails_midway_is_an_error() {
        let done = message(3, 0, SEQUENCE, &(-libc::ENOMEM).to_ne_bytes());
        assert_eq!(
            walked(&done).0,
            Step::Refused {
                errno: libc::ENOMEM,
                text: None
            }
        );
    }

    #[test]
    fn no_cut_and_no_length_of_a_message_makes_it_read_beyond() {
        let mut body = (-1i32).to_ne_bytes().to_vec();
        body.extend(message(18, 0, SEQUENCE, &[]));
        push_attribute(&mut body, NLMSGERR_ATTR_MSG, b"no\0");
        for kind in [2, 3, 16] {
            for flags in [0, NLM_F_ACK_TLVS, NLM_F_ACK_TLVS | NLM_F_CAPPED] {
                let datagram = message(kind, flags, SEQUENCE, &body);
                for len in 0..=datagram.len() {
                    walked(&datagram[..len]);
                    let mut lying = datagram.clone();
                    lying[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                    walked(&lying);
                    lying[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
                    walked(&lying);
                }
            }
        }
    }

    #[test]
    fn attributes_end_at_the_first_one_that_is_cut() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 1 | 0x8000, b"nested");
        push_attribute(&mut bytes, 2, &[]);
        push_attribute(&mut bytes, 3, b"cut");
        for len in 0..=bytes.len() {
            let kinds: Vec<u16> = attributes(&bytes[..len]).map(|(kind, _)| kind).collect();
            // The last one's padding may be missing.
            let expected: &[u16] = match len {
                0..10 => &[],
                10..16 => &[1],
                16..23 => &[1, 2],
                _ => &[1, 2, 3],
            };
            assert_eq!(kinds, expected, "{len} bytes");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than itself");
        assert_eq!(attributes(&[0; 8]).count(), 0, "no endless loop");
    }

    #[test]
    fn the_kernel_names_its_reason() {
        // RTM_GETLINK for an interface that does not exist.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let question = Question {
            dump: false,
            body: &body,
            ..QUESTION
        };
        let Err(Error::Netlink { source, .. }) = ask(&question, |_| Some(())) else {
            panic!("the kernel answered");
        };
        assert_eq!(source.raw_os_error(), Some(libc::ENODEV));
    }
}
