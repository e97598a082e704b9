//! IPsec policies, by NETLINK_XFRM: a packet that one covers must be encrypted, decrypted or
//! refused by the kernel, and the fast path asks none of them.

use super::netlink::{Question, ask_if_present, attributes_after, u32_at};
use super::{Error, Obstacle};

const XFRM_MSG_NEWSPDINFO: u16 = 0x24;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
/// `struct xfrmu_spdinfo`, numbers of policies: in, out, forward, and the same three of sockets.
const XFRMA_SPD_INFO: u16 = 1;
/// `XFRM_USERPOLICY_BLOCK`.
const BLOCK: u8 = 1;

/// The policies of the namespace, sockets' own (an IKE daemon's) apart, and a default that blocks
/// what no policy covers. Needs CAP_NET_ADMIN; asking makes a modular kernel load xfrm_user.
pub(super) fn obstacles() -> Result<Vec<Obstacle>, Error> {
    let mut found = Vec::new();
    // The counts, and not a dump: a host with thousands of tunnels is asked as quickly.
    let counts = ask_if_present(
        &question(
            "the IPsec policies",
            XFRM_MSG_GETSPDINFO,
            XFRM_MSG_NEWSPDINFO,
        ),
        read_count,
    )?;
    let count = counts.into_iter().sum();
    if count != 0 {
        found.push(Obstacle::XfrmPolicies { count });
    }
    // Linux 5.15; older ones refuse the question and have no such default.
    let blocks = ask_if_present(
        &question(
            "the IPsec default",
            XFRM_MSG_GETDEFAULT,
            XFRM_MSG_GETDEFAULT,
        ),
        read_default,
    )?;
    if blocks.contains(&true) {
        found.push(Obstacle::XfrmDefaultBlock);
    }
    Ok(found)
}

/// Both questions are a `u32` of flags, and so is what stands in front of the first answer.
fn question(what: &'static str, ask: u16, answer: u16) -> Question<'static> {
    Question {
        protocol: libc::NETLINK_XFRM as isize,
        what,
        ask,
        answer,
        dump: false,
        body: &[0; 4],
    }
}

fn read_count(body: &[u8]) -> Option<u32> {
    let (_, info) = attributes_after(body, 4).find(|(kind, _)| *kind == XFRMA_SPD_INFO)?;
    let directions = (0..3).map(|at| u32_at(info, at * 4).unwrap_or(0));
    Some(directions.fold(0, u32::saturating_add))
}

/// Whether forwarded packets that no policy covers are blocked, on their way in or out:
/// `struct xfrm_userpolicy_default` is in, forward, out.
fn read_default(body: &[u8]) -> Option<bool> {
    let default = body.first_chunk::<3>()?;
    Some(default[1] == BLOCK || default[2] == BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::push_attribute;
    use crate::host::testing::{in_namespace, ip};

    fn message(counts: [u32; 6]) -> Vec<u8> {
        let info: Vec<u8> = counts.iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut body = vec![0; 4];
        push_attribute(&mut body, 2, &[0; 8]);
        push_attribute(&mut body, XFRMA_SPD_INFO, &info);
        body
    }

    #[test]
    fn sockets_policies_are_not_counted() {
        assert_eq!(read_count(&message([1, 2, 3, 7, 7, 7])), Some(6));
        assert_eq!(read_count(&message([0, 0, 0, 7, 7, 7])), Some(0));
        assert_eq!(read_count(&message([u32::MAX; 6])), Some(u32::MAX));
    }

    #[test]
    fn a_cut_answer_is_read_as_far_as_it_goes() {
        let whole = message([1; 6]);
        for len in 0..whole.len() {
            read_count(&whole[..len]);
            read_default(&whole[..len]);
        }
    }

    #[test]
    fn policies_are_counted_when_there_are_any() {
        in_namespace(|| {
            assert_eq!(obstacles().unwrap(), []);
            let policy = "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir fwd \
                          tmpl src 10.9.0.1 dst 10.9.0.2 proto esp mode tunnel";
            ip(policy);
            ip(&policy.replace("dir fwd", "dir out"));
            assert_eq!(obstacles().unwrap(), [Obstacle::XfrmPolicies { count: 2 }]);
            ip("xfrm policy flush");
            assert_eq!(obstacles().unwrap(), []);
        });
    }

    #[test]
    fn a_default_that_blocks_forwarding_is_found() {
        in_namespace(|| {
            ip("xfrm policy setdefault in block");
            assert_eq!(obstacles().unwrap(), [], "forwarded packets don't come in");
            ip("xfrm policy setdefault fwd block");
            assert_eq!(obstacles().unwrap(), [Obstacle::XfrmDefaultBlock]);
            ip("xfrm policy setdefault fwd accept");
            assert_eq!(obstacles().unwrap(), []);
        });
    }
}
