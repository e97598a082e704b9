// SPDX-License-Identifier: GPL-2.0
/*
 * What a device and its ports say of themselves: attributes, port state, GIDs,
 * P_Keys, hardware counters.
 */
#include <rdma/ib_mad.h>
#include "vhca.h"

static const struct rdma_stat_desc stat_desc[] = {
	[VH_C_RNR].name = "rnr_nak_retry_err",
	[VH_C_TIMEOUT].name = "local_ack_timeout_err",
	[VH_C_NOBUF].name = "out_of_buffer",
	[VH_C_REM_ACCESS].name = "req_remote_access_errors",
	[VH_C_REM_INVAL].name = "req_remote_invalid_request",
	[VH_C_CQE_ERR].name = "req_cqe_error",
	[VH_C_FLUSH].name = "req_cqe_flush_error",
};

static struct vh_port *to_port(struct ib_device *ib, u32 port)
{
	return &TO(vh_dev, ib, ib)->hca->port[port - 1];
}

static int query_device(struct ib_device *ib, struct ib_device_attr *a,
			struct ib_udata *udata)
{
	const struct vh_offer *offer = &TO(vh_dev, ib, ib)->offer;

	memset(a, 0, sizeof(*a));
	a->fw_ver = 1;
	a->sys_image_guid = ib->node_guid;
	a->max_mr_size = ~0ull;
	a->page_size_cap = PAGE_SIZE;
	a->vendor_id = 0x564843;
	a->vendor_part_id = 1;
	a->hw_ver = 1;
	a->max_qp_rd_atom = VH_RD_ATOM;
	a->max_qp_init_rd_atom = VH_RD_ATOM;
	a->max_res_rd_atom = VH_RD_ATOM * VH_MAX_QP;
	a->atomic_cap = IB_ATOMIC_HCA;
	a->local_ca_ack_delay = 15;
	a->device_cap_flags = IB_DEVICE_PORT_ACTIVE_EVENT |
		IB_DEVICE_SYS_IMAGE_GUID | IB_DEVICE_RC_RNR_NAK_GEN;
	a->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	a->max_qp = VH_MAX_QP;
	a->max_qp_wr = VH_MAX_WR;
	a->max_send_sge = VH_MAX_SGE;
	a->max_recv_sge = VH_MAX_SGE;
	a->max_sge_rd = VH_MAX_SGE;
	a->max_cq = 65536;
	a->max_cqe = VH_MAX_CQE;
	a->max_mr = VH_MAX_MR;
	a->max_pd = 65536;
	a->max_ah = 65536;
	a->max_mcast_grp = VH_MAX_GRP;
	a->max_mcast_qp_attach = 64;
	a->max_total_mcast_qp_attach = VH_MAX_GRP * 64;
	a->max_pkeys = VH_MAX_PKEY;
	if (offer->srq) {
		a->max_srq = 1024;
		a->max_srq_wr = VH_MAX_WR;
		a->max_srq_sge = VH_MAX_SGE;
	}
	if (offer->csum)
		a->device_cap_flags |= IB_DEVICE_UD_IP_CSUM;
	if (offer->csum && offer->tso)
		a->kernel_cap_flags |= IBK_UD_TSO;
	return 0;
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *a)
{
	struct vh_port *p = to_port(ib, port);
	struct vh_ctx c;

	vh_lock(&c);
	a->state = vh_port_state(p);
	a->phys_state = p->link ? IB_PORT_PHYS_STATE_LINK_UP :
				  IB_PORT_PHYS_STATE_POLLING;
	a->lid = vh_port_lid(p);
	a->sm_lid = p->sm_lid;
	vh_unlock(&c);
	a->max_mtu = vh_mtu();
	a->active_mtu = vh_mtu();
	a->gid_tbl_len = 1;
	a->pkey_tbl_len = VH_MAX_PKEY;
	a->port_cap_flags = IB_PORT_CM_SUP | IB_PORT_CLIENT_REG_SUP;
	a->max_msg_sz = 1 << 30;
	a->max_vl_num = 1;
	a->subnet_timeout = 18;
	a->active_width = IB_WIDTH_4X;
	a->active_speed = IB_SPEED_QDR;
	return 0;
}

/* ib_cm sets IB_PORT_CM_SUP here and gives the device up if it cannot. */
static int modify_port(struct ib_device *ib, u32 port, int mask,
		       struct ib_port_modify *m)
{
	return 0;
}

static int port_immutable(struct ib_device *ib, u32 port,
			  struct ib_port_immutable *im)
{
	im->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	im->pkey_tbl_len = VH_MAX_PKEY;
	im->gid_tbl_len = 1;
	im->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static int query_gid(struct ib_device *ib, u32 port, int i, union ib_gid *gid)
{
	struct vh_ctx c;

	if (i)
		return -EINVAL;
	vh_lock(&c);
	vh_port_gid(to_port(ib, port), gid);
	vh_unlock(&c);
	return 0;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 i, u16 *pkey)
{
	if (i >= VH_MAX_PKEY)
		return -EINVAL;
	*pkey = READ_ONCE(to_port(ib, port)->pkeys[i]);
	return 0;
}

static struct rdma_hw_stats *alloc_stats(struct ib_device *ib, u32 port)
{
	return rdma_alloc_hw_stats_struct(stat_desc, VH_COUNTERS,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int get_stats(struct ib_device *ib, struct rdma_hw_stats *stats,
		     u32 port, int index)
{
	if (!port)
		return -EINVAL;
	memcpy(stats->value, to_port(ib, port)->cnt, VH_COUNTERS * sizeof(u64));
	return VH_COUNTERS;
}

const struct ib_device_ops vh_device_ops = {
	.query_device = query_device,
	.query_port = query_port,
	.modify_port = modify_port,
	.get_port_immutable = port_immutable,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.alloc_hw_port_stats = alloc_stats,
	.get_hw_stats = get_stats,
};
