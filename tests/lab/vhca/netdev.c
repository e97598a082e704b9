// SPDX-License-Identifier: GPL-2.0
/*
 * The "enhanced" mode of mlx5, where the device brings its own IPoIB network
 * interface. ib_ipoib then leaves the data path to it and has no connected
 * mode: the first byte of the link-layer address is 00, and `mode` cannot be
 * written. Datagrams go through one UD QP, one buffer each, no offloads.
 */
#include <linux/if_infiniband.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_pack.h>
#include "vhca.h"

#define RING		128
#define BUF		(4096 + IB_GRH_BYTES)
#define IPOIB_HLEN	4	/* protocol, reserved: RFC 4391 section 6 */
#define PSEUDO_HLEN	20	/* the address that ib_ipoib puts before it */

struct buf {
	struct ib_cqe cqe;
	struct net_device *dev;
	struct sk_buff *skb;
};

struct enhanced {
	struct rdma_netdev rn;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u16 pkey_index;
	struct buf rx[RING], tx[RING];
	atomic_t tx_used, posted;	/* posted: of both rings */
	wait_queue_head_t idle;
	u32 tx_next;
};

static struct enhanced *to_enhanced(struct net_device *dev)
{
	return netdev_priv(dev);
}

static void posted(struct enhanced *e)
{
	atomic_inc(&e->posted);
}

static void done(struct enhanced *e)
{
	if (atomic_dec_and_test(&e->posted))
		wake_up(&e->idle);
}

static int post_rx(struct enhanced *e, struct buf *b)
{
	struct ib_sge sge = {
		.length = BUF, .lkey = e->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &b->cqe, .sg_list = &sge, .num_sge = 1,
	};
	int ret;

	b->skb = dev_alloc_skb(BUF + PSEUDO_HLEN);
	if (!b->skb)
		return -ENOMEM;
	sge.addr = (uintptr_t)b->skb->data;
	posted(e);
	ret = ib_post_recv(e->qp, &wr, NULL);
	if (ret) {
		done(e);
		dev_kfree_skb_any(b->skb);
		b->skb = NULL;
	}
	return ret;
}

static u8 packet_type(const struct net_device *dev, const struct sk_buff *skb,
		      const struct ib_wc *wc)
{
	const struct ib_grh *grh = (void *)skb->data;

	if (!(wc->wc_flags & IB_WC_GRH) || grh->dgid.raw[0] != 0xff)
		return PACKET_HOST;
	return memcmp(&grh->dgid, dev->broadcast + 4, sizeof(grh->dgid)) ?
		PACKET_MULTICAST : PACKET_BROADCAST;
}

static void rx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct buf *b = container_of(wc->wr_cqe, struct buf, cqe);
	struct net_device *dev = b->dev;
	struct sk_buff *skb = b->skb;

	b->skb = NULL;
	if (wc->status == IB_WC_SUCCESS && wc->byte_len > IB_GRH_BYTES + IPOIB_HLEN) {
		skb_put(skb, wc->byte_len);
		skb->pkt_type = packet_type(dev, skb, wc);
		skb_pull(skb, IB_GRH_BYTES);
		skb->protocol = *(__be16 *)skb->data;
		/* over the end of the GRH */
		memset(skb_push(skb, PSEUDO_HLEN), 0, PSEUDO_HLEN);
		skb_reset_mac_header(skb);
		skb_pull(skb, PSEUDO_HLEN + IPOIB_HLEN);
		skb->dev = dev;
		dev_sw_netstats_rx_add(dev, skb->len);
		netif_receive_skb(skb);
	} else {
		dev_kfree_skb_any(skb);
	}
	if (wc->status == IB_WC_SUCCESS && post_rx(to_enhanced(dev), b))
		dev->stats.rx_missed_errors++;
	done(to_enhanced(dev));
}

static void tx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct buf *b = container_of(wc->wr_cqe, struct buf, cqe);
	struct net_device *dev = b->dev;

	if (wc->status == IB_WC_SUCCESS)
		dev_sw_netstats_tx_add(dev, 1, b->skb->len);
	else
		dev->stats.tx_errors++;
	dev_kfree_skb_any(b->skb);
	b->skb = NULL;
	atomic_dec(&to_enhanced(dev)->tx_used);
	netif_wake_queue(dev);
	done(to_enhanced(dev));
}

/* ib_ipoib calls this from ndo_start_xmit: one at a time. */
static int send(struct net_device *dev, struct sk_buff *skb, struct ib_ah *ah,
		u32 dqpn)
{
	struct enhanced *e = to_enhanced(dev);
	struct buf *b = &e->tx[e->tx_next % RING];
	struct ib_sge sge = { .lkey = e->pd->local_dma_lkey };
	struct ib_ud_wr wr = {
		.wr = { .wr_cqe = &b->cqe, .sg_list = &sge, .num_sge = 1,
			.opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED },
		.ah = ah, .remote_qpn = dqpn, .remote_qkey = 0x80000000,
	};

	if (b->skb || skb->len > e->rn.mtu + IPOIB_HLEN || skb_linearize(skb))
		goto drop;
	sge.addr = (uintptr_t)skb->data;
	sge.length = skb->len;
	b->skb = skb;
	skb_orphan(skb);
	if (atomic_inc_return(&e->tx_used) == RING)
		netif_stop_queue(dev);
	e->tx_next++;
	posted(e);
	if (!ib_post_send(e->qp, &wr.wr, NULL))
		return 0;
	e->tx_next--;
	atomic_dec(&e->tx_used);
	done(e);
	b->skb = NULL;
drop:
	dev->stats.tx_dropped++;
	dev_kfree_skb_any(skb);
	return 0;
}

static int attach_mcast(struct net_device *dev, struct ib_device *hca,
			union ib_gid *gid, u16 lid, int set_qkey, u32 qkey)
{
	struct ib_qp_attr attr = { .qkey = qkey };
	struct enhanced *e = to_enhanced(dev);
	int ret = 0;

	if (set_qkey)
		ret = ib_modify_qp(e->qp, &attr, IB_QP_QKEY);
	return ret ?: ib_attach_mcast(e->qp, gid, lid);
}

static int detach_mcast(struct net_device *dev, struct ib_device *hca,
			union ib_gid *gid, u16 lid)
{
	return ib_detach_mcast(to_enhanced(dev)->qp, gid, lid);
}

static void set_id(struct net_device *dev, int id)
{
	to_enhanced(dev)->pkey_index = id;
}

static int ndo_init(struct net_device *dev)
{
	struct enhanced *e = to_enhanced(dev);
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = RING, .max_recv_wr = RING,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IB_QPT_UD, .sq_sig_type = IB_SIGNAL_ALL_WR,
	};
	u8 qpn[3];
	int ret;

	e->pd = ib_alloc_pd(e->rn.hca, 0);
	if (IS_ERR(e->pd))
		return PTR_ERR(e->pd);
	e->cq = ib_alloc_cq(e->rn.hca, e, 2 * RING + 2, 0, IB_POLL_SOFTIRQ);
	if (IS_ERR(e->cq)) {
		ret = PTR_ERR(e->cq);
		goto no_cq;
	}
	attr.send_cq = e->cq;
	attr.recv_cq = e->cq;
	e->qp = ib_create_qp(e->pd, &attr);
	if (IS_ERR(e->qp)) {
		ret = PTR_ERR(e->qp);
		goto no_qp;
	}
	qpn[0] = e->qp->qp_num >> 16;
	qpn[1] = e->qp->qp_num >> 8;
	qpn[2] = e->qp->qp_num;
	dev_addr_mod(dev, 1, qpn, sizeof(qpn));
	vh_born(VH_O_NETDEV);
	return 0;

no_qp:
	ib_free_cq(e->cq);
no_cq:
	ib_dealloc_pd(e->pd);
	return ret;
}

static void ndo_uninit(struct net_device *dev)
{
	struct enhanced *e = to_enhanced(dev);

	ib_destroy_qp(e->qp);
	ib_free_cq(e->cq);
	ib_dealloc_pd(e->pd);
	vh_gone(VH_O_NETDEV);
}

static int ndo_stop(struct net_device *dev)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct enhanced *e = to_enhanced(dev);

	ib_modify_qp(e->qp, &attr, IB_QP_STATE);
	wait_event(e->idle, !atomic_read(&e->posted));
	attr.qp_state = IB_QPS_RESET;
	return ib_modify_qp(e->qp, &attr, IB_QP_STATE);
}

static int ndo_open(struct net_device *dev)
{
	struct enhanced *e = to_enhanced(dev);
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = e->rn.port_num,
		.pkey_index = e->pkey_index,
	};
	int i, ret;

	ret = ib_modify_qp(e->qp, &attr, IB_QP_STATE | IB_QP_PORT |
			   IB_QP_PKEY_INDEX | IB_QP_QKEY);
	attr.qp_state = IB_QPS_RTR;
	ret = ret ?: ib_modify_qp(e->qp, &attr, IB_QP_STATE);
	attr.qp_state = IB_QPS_RTS;
	ret = ret ?: ib_modify_qp(e->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
	for (i = 0; i < RING && !ret; i++)
		ret = post_rx(e, &e->rx[i]);
	if (ret)
		ndo_stop(dev);
	return ret;
}

static const struct net_device_ops enhanced_ops = {
	.ndo_init = ndo_init,
	.ndo_uninit = ndo_uninit,
	.ndo_open = ndo_open,
	.ndo_stop = ndo_stop,
	.ndo_get_stats64 = dev_get_tstats64,
};

static void destructor(struct net_device *dev)
{
	free_percpu(dev->tstats);
}

static int setup(struct ib_device *hca, u32 port, struct net_device *dev,
		 void *param)
{
	struct enhanced *e = to_enhanced(dev);
	int i;

	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!dev->tstats)
		return -ENOMEM;
	e->rn.send = send;
	e->rn.attach_mcast = attach_mcast;
	e->rn.detach_mcast = detach_mcast;
	e->rn.set_id = set_id;
	e->rn.hca = hca;
	e->rn.port_num = port;
	init_waitqueue_head(&e->idle);
	for (i = 0; i < RING; i++) {
		e->rx[i].dev = dev;
		e->rx[i].cqe.done = rx_done;
		e->tx[i].dev = dev;
		e->tx[i].cqe.done = tx_done;
	}
	dev->netdev_ops = &enhanced_ops;
	dev->priv_destructor = destructor;
	return 0;
}

static int get_params(struct ib_device *hca, u32 port, enum rdma_netdev_t type,
		      struct rdma_netdev_alloc_params *params)
{
	if (type != RDMA_NETDEV_IPOIB)
		return -EOPNOTSUPP;
	*params = (struct rdma_netdev_alloc_params){
		.sizeof_priv = sizeof(struct enhanced),
		.txqs = 1, .rxqs = 1,
		.initialize_rdma_netdev = setup,
	};
	return 0;
}

const struct ib_device_ops vh_netdev_ops = {
	.rdma_netdev_get_params = get_params,
};
