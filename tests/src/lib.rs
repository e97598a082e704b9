//! What the tests share: a gateway between two hosts in namespaces, the VM lab's InfiniBand, raw frames in and out, packets
//! to send, the host's model of the kernel's tables, and the way to run a loaded program on one
//! packet.

pub mod device;
pub mod exchange;
pub mod gateway;
pub mod lab;
pub mod model;
pub mod packets;
pub mod raw_program;
pub mod raw_socket;
pub mod test_run;
