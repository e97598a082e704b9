// SPDX-License-Identifier: GPL-2.0
/*
 * The fabric: its lock, ports by LID and GID, QPs by number, and where an
 * unreliable datagram goes - to a QP, to the QPs attached to a multicast
 * group, or to a subnet manager.
 */
#include <linux/slab.h>
#include <rdma/ib_pack.h>
#include "vhca.h"

#define QPN_BASE	0x40

struct mcast {
	struct list_head l;
	union ib_gid gid;
	struct vh_qp *qp;
};

/* One lock for all that moves: simple, and makes every teardown safe. */
static DEFINE_SPINLOCK(fabric);
static struct vh_qp *qps[VH_MAX_QP];
static u32 qp_hint;
static LIST_HEAD(mcasts);
u64 vh_prefix = 0xfe80000000000000ull;

/*
 * Completion handlers may raise a softirq; do it with bottom halves off so
 * that it runs at once when we were called from process context.
 */
void vh_lock(struct vh_ctx *c)
{
	c->bh = !irqs_disabled();
	if (c->bh)
		local_bh_disable();
	spin_lock_irqsave(&fabric, c->flags);
}

void vh_unlock(struct vh_ctx *c)
{
	spin_unlock_irqrestore(&fabric, c->flags);
	if (c->bh)
		local_bh_enable();
}

/* A subnet manager leaves a port without a GUID (a bare VF) in INIT. */
enum ib_port_state vh_port_state(const struct vh_port *p)
{
	if (!p->link)
		return IB_PORT_DOWN;
	return p->swept && p->guid ? IB_PORT_ACTIVE : IB_PORT_INIT;
}

u16 vh_port_lid(const struct vh_port *p)
{
	return p->swept ? p->lid : 0;
}

void vh_port_gid(const struct vh_port *p, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(vh_prefix);
	gid->global.interface_id = cpu_to_be64(p->guid);
}

int vh_port_index(const struct vh_port *p)
{
	return p->hca->idx * VH_MAX_PORT + p->num - 1;
}

static bool active(const struct vh_port *p)
{
	return p->hca->dev && vh_port_state(p) == IB_PORT_ACTIVE;
}

#define for_each_port(h, p)						\
	for (h = vh_hcas; h < vh_hcas + vh_nhca; h++)			\
		for (p = h->port; p < h->port + vh_nport; p++)

/* Active ports only: no other one answers. */
struct vh_port *vh_port_by_lid(u16 lid)
{
	struct vh_hca *h;
	struct vh_port *p;

	for_each_port(h, p)
		if (p->lid == lid && active(p))
			return p;
	return NULL;
}

struct vh_port *vh_port_by_gid(const union ib_gid *gid)
{
	u64 guid = be64_to_cpu(gid->global.interface_id);
	struct vh_hca *h;
	struct vh_port *p;

	if (gid->global.subnet_prefix != cpu_to_be64(vh_prefix))
		return NULL;
	for_each_port(h, p)
		if (p->guid == guid && active(p))
			return p;
	return NULL;
}

struct vh_qp *vh_qp_find(struct vh_port *p, u32 qpn)
{
	struct vh_qp *qp;

	if (qpn == 0)
		return p->smi;
	if (qpn == 1)
		return p->gsi;
	if (qpn < QPN_BASE || qpn >= QPN_BASE + VH_MAX_QP)
		return NULL;
	qp = qps[qpn - QPN_BASE];
	return qp && qp->port == p ? qp : NULL;
}

/* Gives the QP its number. */
int vh_qp_add(struct vh_qp *qp)
{
	struct vh_ctx c;
	int i, ret = 0;

	vh_lock(&c);
	if (qp->ib.qp_type == IB_QPT_SMI) {
		qp->ib.qp_num = 0;
		qp->port->smi = qp;
	} else if (qp->ib.qp_type == IB_QPT_GSI) {
		qp->ib.qp_num = 1;
		qp->port->gsi = qp;
	} else {
		for (i = 0; i < VH_MAX_QP && qps[qp_hint % VH_MAX_QP]; i++)
			qp_hint++;
		if (i == VH_MAX_QP) {
			ret = -ENOSPC;
		} else {
			i = qp_hint++ % VH_MAX_QP;
			qps[i] = qp;
			qp->ib.qp_num = QPN_BASE + i;
		}
	}
	vh_unlock(&c);
	return ret;
}

/* Callers hold the fabric lock. */
void vh_qp_del(struct vh_qp *qp)
{
	struct mcast *m, *t;

	if (qp->ib.qp_num == 0)
		qp->port->smi = NULL;
	else if (qp->ib.qp_num == 1)
		qp->port->gsi = NULL;
	else
		qps[qp->ib.qp_num - QPN_BASE] = NULL;
	list_for_each_entry_safe(m, t, &mcasts, l)
		if (m->qp == qp) {
			list_del(&m->l);
			kfree(m);
			vh_gone(VH_O_MCAST);
		}
}

/*
 * The device goes: fail its connections first, as hardware in internal error
 * does. ib_ipoib destroys its CQs while a connection's sends are outstanding.
 */
void vh_qp_fail_all(struct vh_hca *hca)
{
	struct vh_qp *qp;
	struct vh_ctx c;
	int i;

	vh_lock(&c);
	for (i = 0; i < VH_MAX_QP; i++) {
		qp = qps[i];
		if (!qp || qp->port->hca != hca || qp->ib.qp_type != IB_QPT_RC ||
		    !vh_can_recv(qp))
			continue;
		vh_qp_error(qp, 0);
		vh_sq_run(qp);
	}
	vh_unlock(&c);
}

bool vh_pkey_match(u16 a, u16 b)
{
	return (a & 0x7fff) && (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000);
}

int vh_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mcast *m = kzalloc(sizeof(*m), GFP_KERNEL);
	struct vh_ctx c;

	if (!m)
		return -ENOMEM;
	m->gid = *gid;
	m->qp = TO(vh_qp, ib, ibqp);
	vh_lock(&c);
	list_add_tail(&m->l, &mcasts);
	vh_unlock(&c);
	vh_born(VH_O_MCAST);
	return 0;
}

int vh_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mcast *m, *found = NULL;
	struct vh_ctx c;

	vh_lock(&c);
	list_for_each_entry(m, &mcasts, l)
		if (&m->qp->ib == ibqp && !memcmp(&m->gid, gid, sizeof(*gid))) {
			list_del(&m->l);
			found = m;
			break;
		}
	vh_unlock(&c);
	if (!found)
		return -EINVAL;
	kfree(found);
	vh_gone(VH_O_MCAST);
	return 0;
}

static enum vh_class ud_class(const struct vh_qp *qp)
{
	return qp->ib.qp_type == IB_QPT_UD ? VH_UD : VH_MAD;
}

static void ud_one(struct vh_qp *src, struct vh_qp *dst, struct vh_swqe *w,
		   struct vh_seg *s, int ns, bool mcast)
{
	u16 pkey = src->port->pkeys[src->ib.qp_type == IB_QPT_UD ?
				    src->attr.pkey_index : w->pkey_index];
	u32 qkey = w->rqkey & 0x80000000 ? src->attr.qkey : w->rqkey;
	struct ib_wc wc = {
		.src_qp = src->ib.qp_num, .slid = src->port->lid, .sl = w->sl,
		.wc_flags = w->has_grh ? IB_WC_GRH : 0,
	};

	if (vh_lost(dst->port, ud_class(dst), VH_RX))
		return;
	if (!vh_can_recv(dst) || dst->ib.qp_type == IB_QPT_RC)
		goto drop;
	if (dst->ib.qp_num > 1) {
		if (!vh_pkey_match(pkey, dst->port->pkeys[dst->attr.pkey_index]))
			goto drop;
		wc.pkey_index = dst->attr.pkey_index;
	} else {
		wc.pkey_index = w->pkey_index;
	}
	if (dst->ib.qp_num && qkey != dst->attr.qkey)
		goto drop;
	/* one segment behind the GRH: see vh_ud_send() */
	if (dst->port->hca->dev->offer.csum && dst->ib.qp_type == IB_QPT_UD &&
	    ns == 2 && vh_csum_good((u8 *)s[1].p, s[1].len))
		wc.wc_flags |= IB_WC_IP_CSUM_OK;
	if (w->opcode == IB_WR_SEND_WITH_IMM) {
		wc.ex.imm_data = w->imm;
		wc.wc_flags |= IB_WC_WITH_IMM;
	}
	if (vh_deliver(dst, s, ns, &wc, w->flags & IB_SEND_SOLICITED) < 0)
		goto drop;
	if (mcast)
		vh_stats.mc++;
	else
		vh_stats.ud++;
	return;
drop:
	vh_stats.ud_drop++;
}

/* One packet: s[0] is room for the GRH, then ns segments of len bytes. */
void vh_ud_packet(struct vh_qp *qp, struct vh_swqe *w, struct vh_seg *s, int ns,
		  u32 len)
{
	struct vh_port *port = qp->port, *to;
	struct ib_grh grh = {};
	struct vh_qp *dst;

	if (vh_lost(port, ud_class(qp), VH_TX))
		return;
	s[0].p = &grh;
	s[0].len = sizeof(grh);
	if (w->has_grh) {
		grh.version_tclass_flow = cpu_to_be32(6u << 28 |
			w->grh.traffic_class << 20 | w->grh.flow_label);
		grh.paylen = cpu_to_be16(len + IB_BTH_BYTES + IB_DETH_BYTES + 4);
		grh.next_hdr = 0x1b;
		grh.hop_limit = w->grh.hop_limit;
		vh_port_gid(port, &grh.sgid);
		grh.dgid = w->grh.dgid;
	}
	if (w->dlid >= VH_MLID_BASE && w->dlid < 0xffff) {
		struct mcast *m;

		list_for_each_entry(m, &mcasts, l)
			if (m->qp != qp && active(m->qp->port) &&
			    !memcmp(&m->gid, &w->grh.dgid, sizeof(m->gid)) &&
			    vh_group_has(w->dlid, &m->gid, m->qp->port))
				ud_one(qp, m->qp, w, s, ns + 1, true);
		return;
	}
	if (vh_sm_is(w->dlid)) {
		vh_sm_mad(qp, w, s + 1, ns);
		return;
	}
	to = vh_port_by_lid(w->dlid);
	dst = to ? vh_qp_find(to, w->rqpn) : NULL;
	if (dst)
		ud_one(qp, dst, w, s, ns + 1, false);
	else
		vh_stats.ud_drop++;
}

void vh_ud_send(struct vh_qp *qp, struct vh_swqe *w)
{
	static u8 whole[4096] __aligned(8);	/* under the fabric lock */
	struct vh_seg s[VH_MAX_SGE + 1];
	int i, ns, len;
	u32 n = 0;

	if (!active(qp->port))
		return;
	len = vh_gather(qp, w, s + 1, &ns);
	if (len < 0)
		return;
	if (w->opcode == IB_WR_LSO) {
		vh_lso(qp, w, s + 1, ns);
		return;
	}
	if (len > vh_mtu_bytes)
		return;
	/* checksums are computed and checked over one piece */
	if (ns > 1 || (w->flags & IB_SEND_IP_CSUM)) {
		for (i = 1; i <= ns; n += s[i].len, i++)
			memcpy(whole + n, s[i].p, s[i].len);
		if (w->flags & IB_SEND_IP_CSUM)
			vh_csum_fill(whole, len);
		s[1].p = whole;
		s[1].len = len;
		ns = 1;
	}
	vh_ud_packet(qp, w, s, ns, len);
}
