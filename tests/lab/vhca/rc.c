// SPDX-License-Identifier: GPL-2.0
/*
 * The reliable connection: SEND, RDMA WRITE and READ, atomics, packet sequence
 * numbers, and the timers of what is not answered. A request is one copy,
 * whatever its length; only PSNs count packets.
 */
#include "vhca.h"

/* NULL: nobody who would answer, so the requester sees a timeout. */
static struct vh_qp *rc_peer(struct vh_qp *qp)
{
	struct vh_port *port = qp->port;
	struct vh_port *to = vh_port_by_lid(rdma_ah_get_dlid(&qp->attr.ah_attr));
	struct vh_qp *dst = to ? vh_qp_find(to, qp->attr.dest_qp_num) : NULL;

	if (vh_port_state(port) != IB_PORT_ACTIVE || !dst ||
	    dst->ib.qp_type != IB_QPT_RC || !vh_can_recv(dst) ||
	    dst->attr.dest_qp_num != qp->ib.qp_num ||
	    rdma_ah_get_dlid(&dst->attr.ah_attr) != port->lid ||
	    dst->exp_psn != qp->snd_psn ||
	    !vh_pkey_match(port->pkeys[qp->attr.pkey_index],
			   to->pkeys[dst->attr.pkey_index]))
		return NULL;
	return dst;
}

static int send(struct vh_qp *dst, struct vh_swqe *w, const struct vh_seg *s,
		int ns, struct ib_wc *wc)
{
	int n = vh_deliver(dst, s, ns, wc, w->flags & IB_SEND_SOLICITED);

	vh_stats.rc++;
	return n == -EMSGSIZE ? IB_WC_REM_INV_REQ_ERR :
	       n < 0 ? IB_WC_REM_OP_ERR : IB_WC_SUCCESS;
}

/* RDMA READ and atomics: what the responder's memory at p held comes back. */
static int fetch(struct vh_qp *qp, struct vh_swqe *w, u8 *p, u32 len)
{
	struct vh_seg in = { p, len };
	u64 old;
	int n;

	if (w->opcode != IB_WR_RDMA_READ) {
		old = *(u64 *)p;
		if (w->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
			*(u64 *)p = old + w->cmp;
		else if (old == w->cmp)
			*(u64 *)p = w->swap;
		in.p = &old;
	}
	n = vh_scatter(w->sge, w->nsge, qp->upd, &in, 1);
	return n == -EMSGSIZE ? IB_WC_LOC_LEN_ERR :
	       n < 0 ? IB_WC_LOC_PROT_ERR : IB_WC_SUCCESS;
}

/*
 * Do the request at the head. Returns a completion status, or -EAGAIN with
 * *why when it has to be tried again. *peer goes to the error state on a NAK.
 */
int vh_rc_request(struct vh_qp *qp, struct vh_swqe *w, struct vh_qp **peer,
		  enum vh_wait *why)
{
	struct ib_wc wc = { .src_qp = qp->ib.qp_num, .slid = qp->port->lid };
	bool read = w->opcode == IB_WR_RDMA_READ, atomic, imm;
	struct vh_qp *dst = rc_peer(qp);
	struct vh_seg s[VH_MAX_SGE];
	int i, n, len, ns, need;
	u8 *p = NULL;

	atomic = w->opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
		 w->opcode == IB_WR_ATOMIC_FETCH_AND_ADD;
	imm = w->opcode == IB_WR_SEND_WITH_IMM ||
	      w->opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	len = vh_gather(qp, w, s, &ns);
	if (len < 0)
		return len == -EFAULT ? IB_WC_LOC_PROT_ERR : IB_WC_LOC_LEN_ERR;
	if (!dst) {
		*why = VH_W_TIMEOUT;
		return -EAGAIN;
	}
	if ((w->opcode == IB_WR_SEND || imm) && !vh_rq_head(dst)) {
		vh_stats.rnr++;
		if (qp->wait != VH_W_RNR) {
			qp->port->cnt[VH_C_RNR]++;
			dst->port->cnt[VH_C_NOBUF]++;
		}
		*why = VH_W_RNR;
		return -EAGAIN;
	}
	if (vh_lost(qp->port, VH_RC, VH_TX) || vh_lost(dst->port, VH_RC, VH_RX)) {
		*why = VH_W_LOST;
		return -EAGAIN;
	}
	*peer = dst;
	n = max_t(int, 1, DIV_ROUND_UP(len, ib_mtu_enum_to_int(qp->attr.path_mtu)));
	qp->snd_psn = (qp->snd_psn + n) & VH_PSN;
	dst->exp_psn = (dst->exp_psn + n) & VH_PSN;
	if (imm) {
		wc.ex.imm_data = w->imm;
		wc.wc_flags |= IB_WC_WITH_IMM;
	}
	if (w->opcode == IB_WR_SEND || w->opcode == IB_WR_SEND_WITH_IMM)
		return send(dst, w, s, ns, &wc);

	/* the rest is done in a region of the peer, if it is a user's QP */
	need = atomic ? IB_ACCESS_REMOTE_ATOMIC :
	       read ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;
	if (atomic) {
		len = 8;
		if (w->raddr & 7)
			return IB_WC_REM_INV_REQ_ERR;
	}
	if (len) {
		if (dst->upd && (dst->attr.qp_access_flags & need))
			p = vh_mr_ptr(dst->upd, w->rkey, w->raddr, len, need);
		if (!p)
			return IB_WC_REM_ACCESS_ERR;
	}
	vh_stats.rdma++;
	if (read || atomic) {
		*peer = NULL;	/* the responder did nothing wrong */
		return fetch(qp, w, p, len);
	}
	for (i = 0; i < ns; p += s[i].len, i++)
		memcpy(p, s[i].p, s[i].len);
	if (imm) {
		wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		wc.byte_len = len;
		vh_rq_complete(dst, &wc, w->flags & IB_SEND_SOLICITED);
	}
	return IB_WC_SUCCESS;
}

/* In ns; U64_MAX: for ever. */
static u64 ack_timeout(const struct vh_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : U64_MAX;
}

/* How long to wait, in ns; 0: not at all, U64_MAX: for ever. */
u64 vh_rc_patience(struct vh_qp *qp, enum vh_wait why)
{
	u64 us, ack = ack_timeout(qp);
	struct vh_qp *dst;
	u8 t;

	if (why == VH_W_LOST)
		return ack;
	if (why == VH_W_TIMEOUT)
		return ack == U64_MAX ? ack : ack * (qp->attr.retry_cnt + 1);
	/* IPoIB asks for no RNR retries; be lossless for kernel users. */
	if (qp->attr.rnr_retry == 7 || !qp->upd)
		return U64_MAX;
	/* the timer values of the InfiniBand architecture, table 45 */
	dst = rc_peer(qp);
	t = dst ? dst->attr.min_rnr_timer & 31 : 1;
	us = t == 0 ? 655360 : t == 1 ? 10 : (10 << t / 2) * (t & 1 ? 3 : 2) / 2;
	return qp->attr.rnr_retry * us * 1000;
}
