//! The library's traits over the kernel: `Packet` over an `__sk_buff`, `Tables` over maps and
//! helpers.

#[cfg(feature = "log")]
pub mod log;
mod maps;
mod skb;

pub use maps::Kernel;
pub use skb::Skb;
