//! What the tests share: packets to send, the host's model of the kernel's tables, and the way to
//! run a loaded program on one packet.

pub mod model;
pub mod packets;
pub mod test_run;
