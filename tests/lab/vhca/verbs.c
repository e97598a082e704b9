// SPDX-License-Identifier: GPL-2.0
/*
 * The objects of the verbs and their lives: protection domains, address
 * handles, completion queues, shared receive queues, queue pairs; and their
 * asynchronous events. What moves on the queues is in queue.c.
 */
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include "vhca.h"

/* ---- asynchronous events ---- */

struct event {
	struct list_head l;
	struct ib_event ev;
};

/*
 * Consumers may take their own locks, so deliver without ours. Destroying an
 * object waits for its events, also on IPoIB's workqueue: hence WQ_MEM_RECLAIM.
 */
static struct workqueue_struct *event_wq;
static LIST_HEAD(events);

static void events_run(struct work_struct *work)
{
	struct event *e;
	struct vh_ctx c;

	for (;;) {
		vh_lock(&c);
		e = list_first_entry_or_null(&events, struct event, l);
		if (e)
			list_del(&e->l);
		vh_unlock(&c);
		if (!e)
			return;
		if (e->ev.event == IB_EVENT_SRQ_LIMIT_REACHED) {
			struct ib_srq *srq = e->ev.element.srq;

			if (srq->event_handler)
				srq->event_handler(&e->ev, srq->srq_context);
		} else if (e->ev.event == IB_EVENT_CQ_ERR) {
			struct ib_cq *cq = e->ev.element.cq;

			if (cq->event_handler)
				cq->event_handler(&e->ev, cq->cq_context);
		} else {
			struct ib_qp *qp = e->ev.element.qp;

			if (qp->event_handler)
				qp->event_handler(&e->ev, qp->qp_context);
		}
		kfree(e);
	}
}
static DECLARE_WORK(event_work, events_run);

/* Callers hold the fabric lock; obj is a QP, an SRQ or a CQ. */
void vh_event(struct ib_device *ib, void *obj, enum ib_event_type type)
{
	struct event *e = kzalloc(sizeof(*e), GFP_ATOMIC);

	if (!e)
		return;
	e->ev.device = ib;
	e->ev.event = type;
	e->ev.element.qp = obj;
	list_add_tail(&e->l, &events);
	queue_work(event_wq, &event_work);
}

static void events_drop(void *obj)
{
	struct event *e, *t;
	struct vh_ctx c;

	vh_lock(&c);
	list_for_each_entry_safe(e, t, &events, l)
		if (e->ev.element.qp == obj) {
			list_del(&e->l);
			kfree(e);
		}
	vh_unlock(&c);
	flush_work(&event_work);
}

int vh_events_init(void)
{
	event_wq = alloc_workqueue("vhca", WQ_MEM_RECLAIM, 0);
	return event_wq ? 0 : -ENOMEM;
}

void vh_events_exit(void)
{
	destroy_workqueue(event_wq);
}

/* ---- completion queues ---- */

void vh_cq_push(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);

	if (cq->tail - cq->head == cq->size) {
		pr_err_ratelimited("vhca: CQ overflow (size %u)\n", cq->size);
		if (!cq->overflow)
			vh_event(ibcq->device, ibcq, IB_EVENT_CQ_ERR);
		cq->overflow = true;
		return;
	}
	cq->ring[cq->tail++ % cq->size] = *wc;
	if (cq->armed == IB_CQ_NEXT_COMP ||
	    (cq->armed == IB_CQ_SOLICITED &&
	     (solicited || wc->status != IB_WC_SUCCESS))) {
		cq->armed = 0;
		if (ibcq->comp_handler)
			ibcq->comp_handler(ibcq, ibcq->cq_context);
	}
}

/* Completions of a reset or destroyed QP must not be seen any more. */
static void cq_purge(struct vh_qp *qp)
{
	u32 i, r, w;

	for (i = 0; i < 2; i++) {
		struct ib_cq *ibcq = i ? qp->ib.recv_cq : qp->ib.send_cq;
		struct vh_cq *cq = TO(vh_cq, ib, ibcq);

		for (r = w = cq->head; r != cq->tail; r++)
			if (cq->ring[r % cq->size].qp != &qp->ib)
				cq->ring[w++ % cq->size] = cq->ring[r % cq->size];
		cq->tail = w;
	}
}

static int cq_alloc(struct ib_cq *ibcq, const struct ib_cq_init_attr *a)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);

	if (a->cqe < 1 || a->cqe > VH_MAX_CQE)
		return -EINVAL;
	cq->size = a->cqe + 16;
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;
	ibcq->cqe = a->cqe;
	vh_born(VH_O_CQ);
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *a,
		     struct uverbs_attr_bundle *attrs)
#else
static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *a,
		     struct ib_udata *udata)
#endif
{
	return cq_alloc(cq, a);
}

static int destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);
	struct vh_ctx c;

	vh_lock(&c);	/* wait out a running completion handler */
	cq->armed = 0;
	vh_unlock(&c);
	events_drop(ibcq);
	kvfree(cq->ring);
	vh_gone(VH_O_CQ);
	return 0;
}

static int resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);
	struct ib_wc *ring, *old = NULL;
	struct vh_ctx c;
	u32 i, n;

	if (cqe < 1 || cqe > VH_MAX_CQE)
		return -EINVAL;
	ring = kvcalloc(cqe + 16, sizeof(*ring), GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	vh_lock(&c);
	n = cq->tail - cq->head;
	if (n <= cqe) {
		for (i = 0; i < n; i++)
			ring[i] = cq->ring[(cq->head + i) % cq->size];
		old = cq->ring;
		cq->ring = ring;
		cq->size = cqe + 16;
		cq->head = 0;
		cq->tail = n;
		ibcq->cqe = cqe;
	}
	vh_unlock(&c);
	kvfree(old ?: ring);
	return old ? 0 : -EINVAL;
}

static int poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);
	struct vh_ctx c;
	int i;

	vh_lock(&c);
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->ring[cq->head++ % cq->size];
	vh_unlock(&c);
	return i;
}

static int req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags f)
{
	struct vh_cq *cq = TO(vh_cq, ib, ibcq);
	struct vh_ctx c;
	int ret = 0;

	vh_lock(&c);
	if (cq->armed != IB_CQ_NEXT_COMP)
		cq->armed = f & IB_CQ_SOLICITED_MASK;
	if ((f & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail)
		ret = 1;
	vh_unlock(&c);
	return ret;
}

/* ---- shared receive queues ---- */

static int create_srq(struct ib_srq *s, struct ib_srq_init_attr *a,
		      struct ib_udata *udata)
{
	struct vh_srq *srq = TO(vh_srq, ib, s);
	int ret;

	if (a->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (a->attr.max_wr > VH_MAX_WR || a->attr.max_sge > VH_MAX_SGE)
		return -EINVAL;
	srq->rq.upd = udata ? s->pd : NULL;
	ret = vh_rq_alloc(&srq->rq, a->attr.max_wr);
	if (!ret)
		vh_born(VH_O_SRQ);
	return ret;
}

static int modify_srq(struct ib_srq *s, struct ib_srq_attr *a,
		      enum ib_srq_attr_mask m, struct ib_udata *udata)
{
	struct vh_ctx c;

	if (m & IB_SRQ_MAX_WR)
		return -EINVAL;		/* no IB_DEVICE_SRQ_RESIZE */
	vh_lock(&c);
	if (m & IB_SRQ_LIMIT)
		TO(vh_srq, ib, s)->rq.limit = a->srq_limit;
	vh_unlock(&c);
	return 0;
}

static int query_srq(struct ib_srq *s, struct ib_srq_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->max_wr = TO(vh_srq, ib, s)->rq.size;
	a->max_sge = VH_MAX_SGE;
	a->srq_limit = TO(vh_srq, ib, s)->rq.limit;
	return 0;
}

static int destroy_srq(struct ib_srq *s, struct ib_udata *udata)
{
	events_drop(s);
	kvfree(TO(vh_srq, ib, s)->rq.ring);
	vh_gone(VH_O_SRQ);
	return 0;
}

/* ---- queue pairs ---- */

static int create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *a,
		     struct ib_udata *udata)
{
	struct vh_hca *hca = TO(vh_dev, ib, ibqp->device)->hca;
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);
	u8 port = a->port_num ?: 1;
	int ret;

	if (a->qp_type != IB_QPT_SMI && a->qp_type != IB_QPT_GSI &&
	    a->qp_type != IB_QPT_UD && a->qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (a->create_flags & ~IB_QP_CREATE_IPOIB_UD_LSO)
		return -EOPNOTSUPP;
	if (a->cap.max_send_sge > VH_MAX_SGE || a->cap.max_recv_sge > VH_MAX_SGE ||
	    a->cap.max_send_wr > VH_MAX_WR || a->cap.max_recv_wr > VH_MAX_WR ||
	    a->cap.max_inline_data > VH_INLINE || port > vh_nport)
		return -EINVAL;
	qp->upd = udata ? ibqp->pd : NULL;
	qp->rq.upd = qp->upd;
	hrtimer_init(&qp->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	qp->timer.function = vh_qp_timer;
	qp->port = &hca->port[port - 1];
	qp->state = IB_QPS_RESET;
	qp->sig_all = a->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = a->cap;
	INIT_LIST_HEAD(&qp->waiters);
	qp->sq_size = max(a->cap.max_send_wr, 1u);
	qp->sq = kvcalloc(qp->sq_size, sizeof(*qp->sq), GFP_KERNEL);
	if (!qp->sq)
		return -ENOMEM;
	ret = a->srq ? 0 : vh_rq_alloc(&qp->rq, a->cap.max_recv_wr);
	if (!ret)
		ret = vh_qp_add(qp);
	if (ret) {
		kvfree(qp->rq.ring);
		kvfree(qp->sq);
		return ret;
	}
	vh_born(VH_O_QP);
	return 0;
}

static void set_attr(struct vh_qp *qp, struct ib_qp_attr *a, int m)
{
	if (m & IB_QP_PORT)
		qp->port = &qp->port->hca->port[a->port_num - 1];
	if (m & IB_QP_PKEY_INDEX)
		qp->attr.pkey_index = a->pkey_index;
	if (m & IB_QP_QKEY)
		qp->attr.qkey = a->qkey;
	if (m & IB_QP_DEST_QPN)
		qp->attr.dest_qp_num = a->dest_qp_num;
	if (m & IB_QP_AV) {
		rdma_destroy_ah_attr(&qp->attr.ah_attr);
		rdma_copy_ah_attr(&qp->attr.ah_attr, &a->ah_attr);
	}
	if (m & IB_QP_TIMEOUT)
		qp->attr.timeout = a->timeout & 31;
	if (m & IB_QP_RETRY_CNT)
		qp->attr.retry_cnt = a->retry_cnt & 7;
	if (m & IB_QP_RNR_RETRY)
		qp->attr.rnr_retry = a->rnr_retry & 7;
	if (m & IB_QP_MIN_RNR_TIMER)
		qp->attr.min_rnr_timer = a->min_rnr_timer;
	if (m & IB_QP_ACCESS_FLAGS)
		qp->attr.qp_access_flags = a->qp_access_flags;
	if (m & IB_QP_MAX_QP_RD_ATOMIC)
		qp->attr.max_rd_atomic = a->max_rd_atomic;
	if (m & IB_QP_MAX_DEST_RD_ATOMIC)
		qp->attr.max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (m & IB_QP_PATH_MTU)
		qp->attr.path_mtu = a->path_mtu;
	if (m & IB_QP_RQ_PSN) {
		qp->exp_psn = a->rq_psn & VH_PSN;
		qp->attr.rq_psn = qp->exp_psn;
	}
	if (m & IB_QP_SQ_PSN) {
		qp->snd_psn = a->sq_psn & VH_PSN;
		qp->attr.sq_psn = qp->snd_psn;
	}
}

static int modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int m,
		     struct ib_udata *udata)
{
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);
	enum ib_qp_state cur, new;
	struct vh_ctx c;

	if (m & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	vh_lock(&c);
	cur = m & IB_QP_CUR_STATE ? a->cur_qp_state : qp->state;
	new = m & IB_QP_STATE ? a->qp_state : cur;
	if (!ib_modify_qp_is_ok(cur, new, ibqp->qp_type, m) ||
	    ((m & IB_QP_PORT) && (!a->port_num || a->port_num > vh_nport)) ||
	    ((m & IB_QP_PATH_MTU) && a->path_mtu > vh_mtu()) ||
	    ((m & IB_QP_PKEY_INDEX) && a->pkey_index >= VH_MAX_PKEY)) {
		vh_unlock(&c);
		return -EINVAL;
	}
	set_attr(qp, a, m);
	if (new == IB_QPS_ERR) {
		vh_qp_error(qp, 0);
		vh_sq_run(qp);
	} else if (new == IB_QPS_RESET) {
		vh_sq_reset(qp);
		qp->rq.head = 0;
		qp->rq.tail = 0;
		cq_purge(qp);
	}
	qp->state = new;
	vh_kick();		/* peers may wait for this state */
	vh_unlock(&c);
	return 0;
}

static int query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int m,
		    struct ib_qp_init_attr *ia)
{
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);

	*a = qp->attr;
	a->ah_attr.grh.sgid_attr = NULL;	/* we hold that reference */
	a->sq_psn = qp->snd_psn;
	a->rq_psn = qp->exp_psn;
	a->qp_state = qp->state;
	a->cur_qp_state = qp->state;
	a->cap = qp->cap;
	a->port_num = qp->port->num;
	memset(ia, 0, sizeof(*ia));
	ia->send_cq = ibqp->send_cq;
	ia->recv_cq = ibqp->recv_cq;
	ia->srq = ibqp->srq;
	ia->cap = qp->cap;
	ia->qp_type = ibqp->qp_type;
	ia->sq_sig_type = qp->sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	return 0;
}

static int destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct vh_qp *qp = TO(vh_qp, ib, ibqp);
	struct vh_ctx c;

	vh_lock(&c);
	qp->state = IB_QPS_RESET;
	vh_qp_del(qp);
	vh_sq_reset(qp);
	cq_purge(qp);
	vh_kick();
	vh_unlock(&c);
	hrtimer_cancel(&qp->timer);
	events_drop(ibqp);
	rdma_destroy_ah_attr(&qp->attr.ah_attr);
	kvfree(qp->sq);
	kvfree(qp->rq.ring);
	vh_gone(VH_O_QP);
	return 0;
}

/* ---- address handles, protection domains ---- */

static int create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *ia,
		     struct ib_udata *udata)
{
	rdma_copy_ah_attr(&TO(vh_ah, ib, ah)->attr, ia->ah_attr);
	vh_born(VH_O_AH);
	return 0;
}

static int modify_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	rdma_destroy_ah_attr(&TO(vh_ah, ib, ah)->attr);
	rdma_copy_ah_attr(&TO(vh_ah, ib, ah)->attr, a);
	return 0;
}

static int query_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	*a = TO(vh_ah, ib, ah)->attr;
	return 0;
}

static int destroy_ah(struct ib_ah *ah, u32 flags)
{
	rdma_destroy_ah_attr(&TO(vh_ah, ib, ah)->attr);
	vh_gone(VH_O_AH);
	return 0;
}

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	vh_born(VH_O_PD);
	return 0;
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	vh_gone(VH_O_PD);
	return 0;
}

const struct ib_device_ops vh_verbs_ops = {
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.create_ah = create_ah,
	.create_user_ah = create_ah,
	.modify_ah = modify_ah,
	.query_ah = query_ah,
	.destroy_ah = destroy_ah,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.resize_cq = resize_cq,
	.poll_cq = poll_cq,
	.req_notify_cq = req_notify_cq,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.attach_mcast = vh_attach_mcast,
	.detach_mcast = vh_detach_mcast,
	INIT_RDMA_OBJ_SIZE(ib_ah, vh_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, vh_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, vh_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, vh_qp, ib),
};

const struct ib_device_ops vh_srq_ops = {
	.create_srq = create_srq,
	.modify_srq = modify_srq,
	.query_srq = query_srq,
	.destroy_srq = destroy_srq,
	.post_srq_recv = vh_post_srq_recv,
	INIT_RDMA_OBJ_SIZE(ib_srq, vh_srq, ib),
};
