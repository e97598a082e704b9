// SPDX-License-Identifier: GPL-2.0
/*
 * Subnet management: which LIDs are subnet managers, the sweep that makes a
 * port active, multicast groups and their members, and the answers of subnet
 * administration (path, MCMember and ClassPortInfo records) and SMInfo.
 *
 * Offsets are those of the records in the InfiniBand architecture, chapter 15.
 */
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_smi.h>
#include "vhca.h"

#define QKEY		0x0b1b
#define NO_RECORDS	0x0300
#define UNSUPPORTED	0x000c

/* Join states: who makes a group live, and who receives. */
#define JOIN_FULL	0x9	/* full, send-only full */
#define JOIN_RECV	0x3	/* full, non-member */

struct group {
	union ib_gid mgid;
	u32 qkey, slfh;
	u16 pkey;
	u8 tclass, scope;
	u8 join[VH_MAX_HCA * VH_MAX_PORT];	/* join state of each port */
	bool used;
};

u16 vh_sm[2] = { VH_SM_LID };
u32 vh_group_mtu;
static struct group groups[VH_MAX_GRP];

bool vh_sm_is(u16 lid)
{
	return lid && (lid == vh_sm[0] || lid == vh_sm[1]);
}

/* The master finds a port and configures it. */
void vh_sm_sweep(struct vh_port *p)
{
	if (!vh_sm[0] || !p->link)
		return;
	p->swept = true;
	p->sm_lid = vh_sm[0];
}

static void group_put(struct group *g)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(g->join); i++)
		if (g->join[i] & JOIN_FULL)
			return;
	g->used = false;
}

/* A port has gone: it has no LID, and is in no group. */
void vh_sm_forget(struct vh_port *p)
{
	struct group *g;

	p->swept = false;
	p->sm_lid = 0;
	for (g = groups; g < groups + VH_MAX_GRP; g++)
		if (g->used) {
			g->join[vh_port_index(p)] = 0;
			group_put(g);
		}
}

/* Another subnet manager knows of no group until the ports join again. */
void vh_sm_restart(void)
{
	memset(groups, 0, sizeof(groups));
}

bool vh_group_has(u16 mlid, const union ib_gid *mgid, struct vh_port *p)
{
	struct group *g = &groups[mlid - VH_MLID_BASE];

	return mlid - VH_MLID_BASE < VH_MAX_GRP && g->used &&
	       !memcmp(&g->mgid, mgid, sizeof(*mgid)) &&
	       (g->join[vh_port_index(p)] & JOIN_RECV);
}

static struct group *group_get(const union ib_gid *mgid, bool create)
{
	struct group *g, *free = NULL;

	for (g = groups; g < groups + VH_MAX_GRP; g++) {
		if (!g->used)
			free = free ?: g;
		else if (!memcmp(&g->mgid, mgid, sizeof(*mgid)))
			return g;
	}
	return create ? free : NULL;
}

static u16 mcmember(struct vh_port *from, u8 method, ib_sa_comp_mask mask, u8 *d)
{
	union ib_gid *mgid = (union ib_gid *)d;
	u8 state = d[48] & 0xf, *join;
	struct group *g;

	g = group_get(mgid, method == IB_MGMT_METHOD_SET && (state & JOIN_FULL));
	if (!g)
		return NO_RECORDS;
	if (!g->used) {
		memset(g, 0, sizeof(*g));
		g->used = true;
		g->mgid = *mgid;
		g->qkey = mask & IB_SA_MCMEMBER_REC_QKEY ?
			get_unaligned_be32(d + 32) : QKEY;
		g->tclass = mask & IB_SA_MCMEMBER_REC_TRAFFIC_CLASS ? d[39] : 0;
		g->pkey = mask & IB_SA_MCMEMBER_REC_PKEY ?
			get_unaligned_be16(d + 40) : 0xffff;
		g->slfh = get_unaligned_be32(d + 44);
		g->scope = mgid->raw[1] & 0xf;
	}
	put_unaligned_be32(g->qkey, d + 32);
	put_unaligned_be16(VH_MLID_BASE + (g - groups), d + 36);
	d[38] = IB_SA_EQ << 6 | ib_mtu_int_to_enum(vh_group_mtu);
	d[39] = g->tclass;
	put_unaligned_be16(g->pkey, d + 40);
	d[42] = IB_SA_EQ << 6 | VH_RATE;
	d[43] = IB_SA_EQ << 6 | (vh_plt & 0x3f);
	put_unaligned_be32(g->slfh, d + 44);
	d[48] = g->scope << 4 | state;
	d[49] = 0;

	join = &g->join[vh_port_index(from)];
	if (method == IB_MGMT_METHOD_SET) {
		*join |= state;
	} else if (method == IB_SA_METHOD_DELETE) {
		*join &= ~state;
		group_put(g);
	}
	return 0;
}

static u16 path(struct vh_port *from, ib_sa_comp_mask mask, u8 *d)
{
	struct vh_port *dst = vh_port_by_gid((union ib_gid *)(d + 8));
	struct vh_port *src = vh_port_by_gid((union ib_gid *)(d + 24));

	if (!dst && (mask & IB_SA_PATH_REC_DLID))
		dst = vh_port_by_lid(get_unaligned_be16(d + 40));
	if (!dst)
		return NO_RECORDS;
	if (!src)
		src = from;
	vh_port_gid(dst, (union ib_gid *)(d + 8));
	vh_port_gid(src, (union ib_gid *)(d + 24));
	put_unaligned_be16(dst->lid, d + 40);
	put_unaligned_be16(src->lid, d + 42);
	put_unaligned_be32(0, d + 44);	/* no GRH needed: hop limit 0 */
	d[48] = 0;
	d[49] = 0x80 | 1;		/* reversible, one path */
	if (!(mask & IB_SA_PATH_REC_PKEY))
		put_unaligned_be16(from->pkeys[0], d + 50);
	put_unaligned_be16(0, d + 52);
	d[54] = IB_SA_EQ << 6 | vh_mtu();
	d[55] = IB_SA_EQ << 6 | VH_RATE;
	d[56] = IB_SA_EQ << 6 | (vh_plt & 0x3f);
	d[57] = 0;
	return 0;
}

/* Only the master administrates. */
static bool answer_sa(struct vh_port *from, u16 lid, struct ib_sa_mad *m)
{
	u8 method = m->mad_hdr.method;
	u16 status;

	if (lid != vh_sm[0] || (method & IB_MGMT_METHOD_RESP))
		return false;
	vh_stats.sa++;
	switch (m->mad_hdr.attr_id) {
	case cpu_to_be16(IB_MGMT_CLASSPORTINFO_ATTR_ID): {
		struct ib_class_port_info *cpi = (void *)m->data;

		memset(m->data, 0, sizeof(m->data));
		cpi->base_version = IB_MGMT_BASE_VERSION;
		cpi->class_version = IB_SA_CLASS_VERSION;
		ib_set_cpi_capmask2(cpi, IB_SA_CAP_MASK2_SENDONLY_FULL_MEM_SUPPORT);
		ib_set_cpi_resp_time(cpi, 16);
		status = 0;
		break;
	}
	case cpu_to_be16(IB_SA_ATTR_MC_MEMBER_REC):
		status = mcmember(from, method, m->sa_hdr.comp_mask, m->data);
		break;
	case cpu_to_be16(IB_SA_ATTR_PATH_REC):
		status = path(from, m->sa_hdr.comp_mask, m->data);
		break;
	default:
		status = UNSUPPORTED;
	}
	if (vh_trace)
		pr_info("vhca%d: SA method %02x attr %04x -> status %04x\n",
			from->hca->idx, method,
			be16_to_cpu(m->mad_hdr.attr_id), status);
	m->mad_hdr.method = method == IB_SA_METHOD_DELETE ?
		IB_SA_METHOD_DELETE_RESP : IB_MGMT_METHOD_GET_RESP;
	m->mad_hdr.status = cpu_to_be16(status);
	return true;
}

/* SMInfo, of master and standby: GUID, SM key, activity, priority and state. */
static bool answer_smi(u16 lid, struct ib_smp *m)
{
	if (m->mgmt_class != IB_MGMT_CLASS_SUBN_LID_ROUTED ||
	    m->method != IB_MGMT_METHOD_GET || m->attr_id != IB_SMP_ATTR_SM_INFO)
		return false;
	memset(m->data, 0, sizeof(m->data));
	put_unaligned_be64(0x0002c903000f0000ull + lid, m->data);
	put_unaligned_be32(vh_stats.sa, m->data + 16);
	m->data[20] = (lid == vh_sm[0] ? 15 : 14) << 4 |
		      (lid == vh_sm[0] ? 3 : 2);	/* master : standby */
	m->method = IB_MGMT_METHOD_GET_RESP;
	m->status = 0;
	return true;
}

/* A MAD for a subnet manager's LID; the answer goes to the asking QP. */
void vh_sm_mad(struct vh_qp *qp, const struct vh_swqe *w,
	       const struct vh_seg *s, int ns)
{
	struct ib_wc wc = { .src_qp = w->rqpn, .slid = w->dlid };
	u8 buf[sizeof(struct ib_grh) + sizeof(struct ib_mad)] = {};
	struct ib_mad_hdr *m = (void *)(buf + sizeof(struct ib_grh));
	struct vh_seg out = { buf, sizeof(buf) };
	bool answer;
	u32 n = 0;
	int i;

	for (i = 0; i < ns; i++) {
		if (n + s[i].len > sizeof(struct ib_mad))
			return;
		memcpy((u8 *)m + n, s[i].p, s[i].len);
		n += s[i].len;
	}
	if (w->rqpn == 1 && m->mgmt_class == IB_MGMT_CLASS_SUBN_ADM)
		answer = answer_sa(qp->port, w->dlid, (void *)m);
	else
		answer = w->rqpn == 0 && answer_smi(w->dlid, (void *)m);
	if (answer && !vh_lost(qp->port, VH_MAD, VH_RX))
		vh_deliver(qp, &out, 1, &wc, true);
}
