// SPDX-License-Identifier: GPL-2.0
/*
 * What an HCA does to IPoIB's datagrams: computes and checks TCP and UDP
 * checksums over IPv4, and cuts a large TCP send into segments.
 */
#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include "vhca.h"

#define IPOIB_HLEN	4	/* protocol, reserved: RFC 4391 section 6 */

/* TCP or UDP over unfragmented IPv4: its header, its checksum, its length. */
static u8 *l4(u8 *p, u32 len, __sum16 **sum, u32 *l4len)
{
	struct iphdr *ip = (void *)(p + IPOIB_HLEN);
	u32 hl, total;
	u8 *th;

	if (len < IPOIB_HLEN + sizeof(*ip) || *(__be16 *)p != htons(ETH_P_IP) ||
	    ip->version != 4 || ip_is_fragment(ip))
		return NULL;
	hl = ip->ihl * 4;
	total = ntohs(ip->tot_len);
	if (hl < sizeof(*ip) || total > len - IPOIB_HLEN || total < hl)
		return NULL;
	th = (u8 *)ip + hl;
	*l4len = total - hl;
	if (ip->protocol == IPPROTO_TCP && *l4len >= sizeof(struct tcphdr))
		*sum = &((struct tcphdr *)th)->check;
	else if (ip->protocol == IPPROTO_UDP && *l4len >= sizeof(struct udphdr))
		*sum = &((struct udphdr *)th)->check;
	else
		return NULL;
	return th;
}

static __sum16 l4_sum(const struct iphdr *ip, const u8 *th, u32 len)
{
	return csum_tcpudp_magic(ip->saddr, ip->daddr, len, ip->protocol,
				 csum_partial(th, len, 0));
}

void vh_csum_fill(u8 *p, u32 len)
{
	__sum16 *sum;
	u32 l4len;
	u8 *th = l4(p, len, &sum, &l4len);

	if (!th)
		return;
	*sum = 0;
	*sum = l4_sum((void *)(p + IPOIB_HLEN), th, l4len);
	if (!*sum)
		*sum = CSUM_MANGLED_0;
}

bool vh_csum_good(u8 *p, u32 len)
{
	__sum16 *sum;
	u32 l4len;
	u8 *th = l4(p, len, &sum, &l4len);

	return th && !l4_sum((void *)(p + IPOIB_HLEN), th, l4len);
}

/*
 * Large send: the ns segments in pieces of mss bytes, each behind the header
 * with its own length, IP id, TCP sequence and flags.
 */
void vh_lso(struct vh_qp *qp, struct vh_swqe *w, const struct vh_seg *s, int ns)
{
	static u8 buf[4096] __aligned(8);	/* under the fabric lock */
	struct iphdr *ip = (void *)(buf + IPOIB_HLEN);
	struct vh_seg out[2];
	struct tcphdr *th;
	u32 off = 0, seq, left = 0, sent = 0;
	u16 id;
	int i;

	if (w->lso_hlen < IPOIB_HLEN + sizeof(*ip) + sizeof(*th) || !w->lso_mss ||
	    w->lso_hlen + w->lso_mss > vh_mtu_bytes)
		return;
	memcpy(buf, w->lso_hdr, w->lso_hlen);
	if (ip->version != 4 || ip->protocol != IPPROTO_TCP)
		return;
	th = (void *)((u8 *)ip + ip->ihl * 4);
	seq = ntohl(th->seq);
	id = ntohs(ip->id);
	for (i = 0; i < ns; i++)
		left += s[i].len;
	for (i = 0; left; id++) {
		u32 len = min(left, w->lso_mss), n = 0;

		memcpy(buf, w->lso_hdr, w->lso_hlen);
		while (n < len) {
			u32 part = min(len - n, s[i].len - off);

			memcpy(buf + w->lso_hlen + n, s[i].p + off, part);
			n += part;
			off += part;
			if (off == s[i].len) {
				i++;
				off = 0;
			}
		}
		left -= len;
		ip->tot_len = htons(w->lso_hlen - IPOIB_HLEN + len);
		ip->id = htons(id);
		ip_send_check(ip);
		th->seq = htonl(seq + sent);
		if (left) {
			th->fin = 0;
			th->psh = 0;
		}
		if (sent)
			th->cwr = 0;
		sent += len;
		vh_csum_fill(buf, w->lso_hlen + len);
		out[1].p = buf;
		out[1].len = w->lso_hlen + len;
		vh_ud_packet(qp, w, out, 1, w->lso_hlen + len);
	}
}
