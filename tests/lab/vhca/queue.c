// SPDX-License-Identifier: GPL-2.0
/*
 * Work on the queues: posting requests, running send queues, filling and
 * completing receive requests, and waiting for what cannot be done yet.
 * All but the posting verbs runs under the fabric lock.
 */
#include <linux/slab.h>
#include "vhca.h"

/* QPs whose request at the head waits: see enum vh_wait. */
static LIST_HEAD(waiters);

/* ---- memory ---- */

/* A kernel queue's SGEs hold kernel addresses (local_dma_lkey, no device DMA). */
static void *sge_ptr(struct ib_pd *upd, const struct ib_sge *g, int acc)
{
	if (!upd || !g->length)
		return (void *)(uintptr_t)g->addr;
	return vh_mr_ptr(upd, g->lkey, g->addr, g->length, acc);
}

/* Returns the bytes copied, or an error. */
int vh_scatter(const struct ib_sge *g, int ng, struct ib_pd *upd,
	       const struct vh_seg *s, int ns)
{
	u32 off = 0, done = 0;
	u8 *base = NULL;
	int d = 0, i;

	for (i = 0; i < ns; i++) {
		const u8 *p = s[i].p;
		u32 left = s[i].len;

		while (left) {
			u32 n;

			while (d < ng && off == g[d].length) {
				d++;
				off = 0;
			}
			if (d == ng)
				return -EMSGSIZE;
			if (!off)
				base = sge_ptr(upd, &g[d], IB_ACCESS_LOCAL_WRITE);
			if (!base)
				return -EFAULT;
			n = min(left, g[d].length - off);
			memcpy(base + off, p, n);
			p += n;
			left -= n;
			off += n;
			done += n;
		}
	}
	return done;
}

/* Returns the length of what a send request sends, or an error. */
int vh_gather(struct vh_qp *qp, struct vh_swqe *w, struct vh_seg *s, int *ns)
{
	u32 len = 0;
	int i;

	if (qp->upd && (w->flags & IB_SEND_INLINE)) {
		s->p = w->inl;
		s->len = w->inl_len;
		*ns = 1;
		return w->inl_len;
	}
	for (i = 0; i < w->nsge; i++) {
		s[i].p = sge_ptr(qp->upd, &w->sge[i], 0);
		s[i].len = w->sge[i].length;
		if (!s[i].p && s[i].len)
			return -EFAULT;
		len += s[i].len;
		if (len > 1u << 30)
			return -EMSGSIZE;
	}
	*ns = w->nsge;
	return len;
}

/* ---- receive queues ---- */

int vh_rq_alloc(struct vh_rq *rq, u32 n)
{
	rq->size = max(n, 1u);
	rq->ring = kvcalloc(rq->size, sizeof(*rq->ring), GFP_KERNEL);
	return rq->ring ? 0 : -ENOMEM;
}

static struct vh_rq *qp_rq(struct vh_qp *qp)
{
	return qp->ib.srq ? &TO(vh_srq, ib, qp->ib.srq)->rq : &qp->rq;
}

static int rq_post(struct vh_rq *rq, const struct ib_recv_wr *wr)
{
	struct vh_rwqe *w;

	if (rq->tail - rq->head == rq->size)
		return -ENOMEM;
	if ((u32)wr->num_sge > VH_MAX_SGE)
		return -EINVAL;
	w = &rq->ring[rq->tail % rq->size];
	w->wr_id = wr->wr_id;
	w->nsge = wr->num_sge;
	memcpy(w->sge, wr->sg_list, sizeof(*w->sge) * wr->num_sge);
	rq->tail++;
	return 0;
}

struct vh_rwqe *vh_rq_head(struct vh_qp *dst)
{
	struct vh_rq *rq = qp_rq(dst);

	return rq->head == rq->tail ? NULL : &rq->ring[rq->head % rq->size];
}

/* Take the receive request at the head and complete it. */
void vh_rq_complete(struct vh_qp *dst, struct ib_wc *wc, bool solicited)
{
	struct vh_rq *rq = qp_rq(dst);

	wc->wr_id = rq->ring[rq->head++ % rq->size].wr_id;
	wc->qp = &dst->ib;
	wc->port_num = dst->port->num;
	if (rq->limit && rq->tail - rq->head < rq->limit) {
		rq->limit = 0;
		vh_event(dst->ib.device, dst->ib.srq, IB_EVENT_SRQ_LIMIT_REACHED);
	}
	vh_cq_push(dst->ib.recv_cq, wc, solicited);
}

int vh_deliver(struct vh_qp *dst, const struct vh_seg *s, int ns,
	       struct ib_wc *wc, bool solicited)
{
	struct vh_rwqe *w = vh_rq_head(dst);
	int n;

	if (!w)
		return -EAGAIN;
	n = vh_scatter(w->sge, w->nsge, qp_rq(dst)->upd, s, ns);
	if (n < 0 && dst->ib.qp_type != IB_QPT_RC)
		return n;		/* UD: silently dropped */
	wc->opcode = IB_WC_RECV;
	wc->status = n == -EMSGSIZE ? IB_WC_LOC_LEN_ERR :
		     n < 0 ? IB_WC_LOC_PROT_ERR : IB_WC_SUCCESS;
	wc->byte_len = max(n, 0);
	vh_rq_complete(dst, wc, solicited);
	return n;
}

void vh_rq_flush(struct vh_qp *qp)
{
	while (!qp->ib.srq && qp->rq.head != qp->rq.tail) {
		struct ib_wc wc = {
			.wr_id = qp->rq.ring[qp->rq.head++ % qp->rq.size].wr_id,
			.qp = &qp->ib, .opcode = IB_WC_RECV,
			.status = IB_WC_WR_FLUSH_ERR,
		};

		vh_cq_push(qp->ib.recv_cq, &wc, false);
	}
}

bool vh_can_recv(const struct vh_qp *qp)
{
	return qp->state == IB_QPS_RTR || qp->state == IB_QPS_RTS ||
	       qp->state == IB_QPS_SQD;
}

/* ---- send queues ---- */

/* Error state, outside of a modify QP; async: an event, or 0. */
void vh_qp_error(struct vh_qp *qp, int async)
{
	if (qp->state == IB_QPS_ERR)
		return;
	qp->state = IB_QPS_ERR;
	vh_rq_flush(qp);
	if (async)
		vh_event(qp->ib.device, &qp->ib, async);
	if (qp->ib.srq)
		vh_event(qp->ib.device, &qp->ib, IB_EVENT_QP_LAST_WQE_REACHED);
}

void vh_sq_reset(struct vh_qp *qp)
{
	qp->sq_head = 0;
	qp->sq_tail = 0;
	qp->wait = VH_W_NONE;
	qp->losses = 0;
	list_del_init(&qp->waiters);
}

static int wc_opcode(int wr)
{
	switch (wr) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:	return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:		return IB_WC_RDMA_READ;
	case IB_WR_ATOMIC_CMP_AND_SWP:	return IB_WC_COMP_SWAP;
	case IB_WR_ATOMIC_FETCH_AND_ADD: return IB_WC_FETCH_ADD;
	case IB_WR_LSO:			return IB_WC_LSO;
	}
	return IB_WC_SEND;
}

static void sq_complete(struct vh_qp *qp, struct vh_swqe *w, int status)
{
	struct ib_wc wc = {
		.wr_id = w->wr_id, .qp = &qp->ib, .opcode = wc_opcode(w->opcode),
		.status = status, .port_num = qp->port->num,
	};
	u64 *cnt = qp->port->cnt;
	int i;

	cnt[VH_C_CQE_ERR] += status != IB_WC_SUCCESS;
	cnt[VH_C_FLUSH] += status == IB_WC_WR_FLUSH_ERR;
	cnt[VH_C_REM_ACCESS] += status == IB_WC_REM_ACCESS_ERR;
	cnt[VH_C_REM_INVAL] += status == IB_WC_REM_INV_REQ_ERR;
	if (w->opcode == IB_WR_RDMA_READ && !status)
		for (i = 0; i < w->nsge; i++)
			wc.byte_len += w->sge[i].length;
	if (qp->sig_all || (w->flags & IB_SEND_SIGNALED) || status)
		vh_cq_push(qp->ib.send_cq, &wc, false);
}

/* Whether the request at the head still has to wait, for ns from now on. */
static bool sq_wait(struct vh_qp *qp, enum vh_wait why, u64 now, u64 ns)
{
	if (qp->wait != why) {
		qp->wait = why;
		qp->deadline = ns == U64_MAX ? ns : now + ns;
		if (ns && ns != U64_MAX) {
			vh_stats.wait++;
			hrtimer_start(&qp->timer, ns_to_ktime(ns),
				      HRTIMER_MODE_REL_SOFT);
		}
	}
	if (now >= qp->deadline)
		return false;
	if (list_empty(&qp->waiters))
		list_add_tail(&qp->waiters, &waiters);
	return true;
}

/* Do a reliable request; returns a completion status, or -EAGAIN: it waits. */
static int rc_try(struct vh_qp *qp, struct vh_swqe *w, u64 now,
		  struct vh_qp **peer)
{
	enum vh_wait why;
	int st;

	if (qp->wait == VH_W_LOST) {
		if (sq_wait(qp, VH_W_LOST, now, 0))
			return -EAGAIN;
		qp->wait = VH_W_NONE;
		qp->port->cnt[VH_C_TIMEOUT]++;
		if (qp->losses > qp->attr.retry_cnt)
			return IB_WC_RETRY_EXC_ERR;
	}
	st = vh_rc_request(qp, w, peer, &why);
	if (st != -EAGAIN)
		return st;
	if (why == VH_W_LOST)
		qp->losses++;
	if (sq_wait(qp, why, now, vh_rc_patience(qp, why)))
		return -EAGAIN;
	if (why == VH_W_RNR)
		return IB_WC_RNR_RETRY_EXC_ERR;
	qp->port->cnt[VH_C_TIMEOUT] += qp->attr.retry_cnt + 1;
	return IB_WC_RETRY_EXC_ERR;
}

static int sq_try(struct vh_qp *qp, struct vh_swqe *w, struct vh_qp **peer)
{
	struct vh_seg s[VH_MAX_SGE];
	u64 now;
	int ns;

	if (qp->state == IB_QPS_ERR || qp->state == IB_QPS_SQE)
		return IB_WC_WR_FLUSH_ERR;
	now = ktime_get_ns();
	if (w->due > now && sq_wait(qp, VH_W_DELAY, now, w->due - now))
		return -EAGAIN;
	if (qp->ib.qp_type == IB_QPT_RC)
		return rc_try(qp, w, now, peer);
	return vh_gather(qp, w, s, &ns) < 0 ? IB_WC_LOC_PROT_ERR : IB_WC_SUCCESS;
}

/* The request failed: so does the QP, and on a NAK its peer. */
static void sq_failed(struct vh_qp *qp, struct vh_swqe *w, struct vh_qp *peer,
		      int st)
{
	if (vh_trace)
		pr_info("vhca%d: QP %#x opcode %d flags %#x -> %s\n",
			qp->port->hca->idx, qp->ib.qp_num, w->opcode, w->flags,
			ib_wc_status_msg(st));
	vh_qp_error(qp, 0);
	if (!peer || peer == qp)
		return;
	vh_qp_error(peer, st == IB_WC_REM_ACCESS_ERR ? IB_EVENT_QP_ACCESS_ERR :
			  st == IB_WC_REM_INV_REQ_ERR ? IB_EVENT_QP_REQ_ERR : 0);
	vh_sq_run(peer);	/* flushes only */
}

void vh_sq_run(struct vh_qp *qp)
{
	while (qp->sq_head != qp->sq_tail) {
		struct vh_swqe *w = &qp->sq[qp->sq_head % qp->sq_size];
		struct vh_qp *peer = NULL;
		int st = sq_try(qp, w, &peer);

		if (st == -EAGAIN)
			return;
		qp->wait = VH_W_NONE;
		qp->losses = 0;
		qp->sq_head++;
		sq_complete(qp, w, st);	/* before a UD answer can arrive */
		if (st == IB_WC_SUCCESS && qp->ib.qp_type != IB_QPT_RC)
			vh_ud_send(qp, w);
		if (st != IB_WC_SUCCESS && st != IB_WC_WR_FLUSH_ERR)
			sq_failed(qp, w, peer, st);
	}
	qp->wait = VH_W_NONE;
	list_del_init(&qp->waiters);
}

/* A receive request, a link or a QP has changed: all who wait try again. */
void vh_kick(void)
{
	struct vh_qp *qp;
	LIST_HEAD(l);

	list_splice_init(&waiters, &l);
	while (!list_empty(&l)) {
		qp = list_first_entry(&l, struct vh_qp, waiters);
		list_move_tail(&qp->waiters, &waiters);
		vh_sq_run(qp);
	}
}

enum hrtimer_restart vh_qp_timer(struct hrtimer *t)
{
	struct vh_qp *qp = TO(vh_qp, timer, t);
	struct vh_ctx c;

	vh_lock(&c);
	if (qp->wait != VH_W_NONE && ktime_get_ns() >= qp->deadline)
		vh_sq_run(qp);
	vh_unlock(&c);
	return HRTIMER_NORESTART;
}

/* ---- posting ---- */

static bool wr_ok(struct vh_qp *qp, const struct ib_send_wr *wr)
{
	bool rc = qp->ib.qp_type == IB_QPT_RC;

	if ((u32)wr->num_sge > VH_MAX_SGE)
		return false;
	switch (wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		return true;
	case IB_WR_LSO:
		return qp->ib.qp_type == IB_QPT_UD && !qp->upd;
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return rc && !(wr->send_flags & IB_SEND_INLINE);
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return rc;
	default:
		return false;
	}
}

static void swqe_ud(struct vh_swqe *w, const struct ib_ud_wr *ud)
{
	struct rdma_ah_attr *a = &TO(vh_ah, ib, ud->ah)->attr;

	w->rqpn = ud->remote_qpn;
	w->rqkey = ud->remote_qkey;
	w->pkey_index = ud->pkey_index;
	w->dlid = rdma_ah_get_dlid(a);
	w->sl = rdma_ah_get_sl(a);
	w->has_grh = !!(rdma_ah_get_ah_flags(a) & IB_AH_GRH);
	if (w->has_grh)
		w->grh = *rdma_ah_read_grh(a);
	w->lso_hdr = ud->header;
	w->lso_hlen = ud->hlen;
	w->lso_mss = ud->mss;
}

static void swqe_rc(struct vh_swqe *w, const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		w->raddr = atomic_wr(wr)->remote_addr;
		w->rkey = atomic_wr(wr)->rkey;
		w->cmp = atomic_wr(wr)->compare_add;
		w->swap = atomic_wr(wr)->swap;
		break;
	default:
		w->raddr = rdma_wr(wr)->remote_addr;
		w->rkey = rdma_wr(wr)->rkey;
	}
}

/* *inl: where a user's inline data is; moved on past this request's. */
static int sq_post(struct vh_qp *qp, const struct ib_send_wr *wr, u8 **inl)
{
	struct vh_swqe *w = &qp->sq[qp->sq_tail % qp->sq_size];
	int i;

	if (qp->sq_tail - qp->sq_head == qp->sq_size)
		return -ENOMEM;
	if (!wr_ok(qp, wr))
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->due = qp->port->delay_us ?
		ktime_get_ns() + qp->port->delay_us * NSEC_PER_USEC : 0;
	w->flags = wr->send_flags;
	w->opcode = wr->opcode;
	w->imm = wr->ex.imm_data;
	w->nsge = wr->num_sge;
	if (qp->upd && (w->flags & IB_SEND_INLINE)) {
		for (i = 0, w->inl_len = 0; i < wr->num_sge; i++)
			w->inl_len += wr->sg_list[i].length;
		if (w->inl_len)
			memcpy(w->inl, *inl, w->inl_len);
		*inl += w->inl_len;
	} else {
		memcpy(w->sge, wr->sg_list, sizeof(*w->sge) * wr->num_sge);
	}
	if (qp->ib.qp_type == IB_QPT_RC)
		swqe_rc(w, wr);
	else
		swqe_ud(w, ud_wr(wr));
	qp->sq_tail++;
	if (list_empty(&qp->waiters))
		vh_sq_run(qp);
	return 0;
}

static int post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		     const struct ib_send_wr **bad)
{
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);
	u8 *inl = NULL, *ip;
	struct vh_ctx c;
	int ret = 0;

	if (qp->upd) {
		ret = vh_inline_get(wr, &inl);
		if (ret) {
			*bad = wr;
			return ret;
		}
	}
	ip = inl;
	vh_lock(&c);
	if (qp->state < IB_QPS_RTS)
		ret = -EINVAL;
	while (wr && !ret) {
		ret = sq_post(qp, wr, &ip);
		if (!ret)
			wr = wr->next;
	}
	vh_unlock(&c);
	if (ret && bad)
		*bad = wr;
	kvfree(inl);
	return ret;
}

static int post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad)
{
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);
	struct vh_ctx c;
	int ret = 0;

	vh_lock(&c);
	if (qp->state == IB_QPS_RESET || ibqp->srq)
		ret = -EINVAL;
	while (wr && !ret) {
		ret = rq_post(&qp->rq, wr);
		if (!ret)
			wr = wr->next;
	}
	if (ret && bad)
		*bad = wr;
	if (qp->state == IB_QPS_ERR)
		vh_rq_flush(qp);
	vh_kick();
	vh_unlock(&c);
	return ret;
}

int vh_post_srq_recv(struct ib_srq *s, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad)
{
	struct vh_ctx c;
	int ret = 0;

	vh_lock(&c);
	while (wr && !ret) {
		ret = rq_post(&TO(vh_srq, ib, s)->rq, wr);
		if (!ret)
			wr = wr->next;
	}
	if (ret && bad)
		*bad = wr;
	vh_kick();
	vh_unlock(&c);
	return ret;
}

const struct ib_device_ops vh_queue_ops = {
	.post_send = post_send,
	.post_recv = post_recv,
};
