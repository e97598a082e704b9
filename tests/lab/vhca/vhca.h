/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of vhca share. An HCA and its ports are slots that live as
 * long as the module, so faults can be set while the device is unplugged;
 * vh_dev is the ib_device that fills a slot while it is plugged.
 */
#ifndef VHCA_H
#define VHCA_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#define VH_MAX_HCA	16
#define VH_MAX_PORT	2
#define VH_MAX_PKEY	16
#define VH_MAX_SGE	32
#define VH_MAX_QP	4096
#define VH_MAX_GRP	512
#define VH_MAX_MR	65536
#define VH_MAX_CQE	65536
#define VH_MAX_WR	16384
#define VH_INLINE	(VH_MAX_SGE * sizeof(struct ib_sge))
#define VH_RD_ATOM	16
#define VH_PSN		0xffffff
#define VH_SM_LID	0x64
#define VH_MLID_BASE	0xc000
#define VH_RATE		IB_RATE_40_GBPS

#define TO(T, m, p) container_of(p, struct T, m)

struct vh_qp;
struct vh_dev;

/* What loss tells apart. */
enum vh_class { VH_UD, VH_RC, VH_MAD, VH_CLASSES };
enum vh_dir { VH_TX, VH_RX, VH_DIRS };

/* Counters under hw_counters/ of a port, named as mlx5 names them. */
enum {
	VH_C_RNR, VH_C_TIMEOUT, VH_C_NOBUF, VH_C_REM_ACCESS, VH_C_REM_INVAL,
	VH_C_CQE_ERR, VH_C_FLUSH, VH_COUNTERS
};

struct vh_port {
	struct vh_hca *hca;
	u8 num;
	bool link;		/* the cable */
	bool swept;		/* a subnet manager has set lid and sm_lid */
	u16 lid;		/* what a sweep assigns */
	u16 sm_lid;
	u64 guid;
	u16 pkeys[VH_MAX_PKEY];
	struct vh_qp *smi, *gsi;
	u64 cnt[VH_COUNTERS];
	u32 delay_us;
	u32 loss[VH_CLASSES][VH_DIRS];		/* one in so many; 0: none */
	u32 loss_seq[VH_CLASSES][VH_DIRS];
	u64 lost[VH_CLASSES][VH_DIRS];
};

struct vh_offer {
	bool csum, tso, connected, srq;
};

struct vh_hca {
	int idx;
	u64 node_guid;
	struct vh_offer offer;	/* from the next plugging on */
	struct vh_dev *dev;	/* NULL: unplugged */
	struct vh_port port[VH_MAX_PORT];
};

struct vh_dev {
	struct ib_device ib;
	struct vh_hca *hca;
	struct vh_offer offer;
};

struct vh_seg {
	const void *p;
	u32 len;
};

struct vh_cq {
	struct ib_cq ib;
	struct ib_wc *ring;
	u32 size, head, tail;
	enum ib_cq_notify_flags armed;
	bool overflow;
};

struct vh_rwqe {
	u64 wr_id;
	int nsge;
	struct ib_sge sge[VH_MAX_SGE];
};

struct vh_rq {
	struct vh_rwqe *ring;
	u32 size, head, tail, limit;
	struct ib_pd *upd;	/* of a user's queue: SGEs need a lookup */
};

struct vh_srq {
	struct ib_srq ib;
	struct vh_rq rq;
};

struct vh_swqe {
	u64 wr_id;
	u64 due;		/* ns; a delayed port's requests wait for it */
	int flags, opcode, nsge;
	__be32 imm;
	u32 rqpn, rqkey, dlid;
	u16 pkey_index;
	u8 sl, has_grh;
	struct ib_global_route grh;
	u64 raddr, cmp, swap;
	u32 rkey, inl_len;
	u8 *lso_hdr;		/* the sender's, as it is: it waits for us */
	u32 lso_hlen, lso_mss;
	union {
		struct ib_sge sge[VH_MAX_SGE];
		u8 inl[VH_INLINE];
	};
};

/* Why the request at the head of a send queue has not been done yet. */
enum vh_wait {
	VH_W_NONE,
	VH_W_DELAY,		/* not due */
	VH_W_LOST,		/* lost: again after the ACK timeout */
	VH_W_RNR,		/* the receiver has no request posted */
	VH_W_TIMEOUT,		/* nobody answers */
};

struct vh_qp {
	struct ib_qp ib;
	struct vh_port *port;
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	struct ib_qp_cap cap;
	bool sig_all;
	struct vh_swqe *sq;
	u32 sq_size, sq_head, sq_tail;
	struct vh_rq rq;
	struct list_head waiters;
	struct ib_pd *upd;
	u32 snd_psn, exp_psn;
	enum vh_wait wait;
	u64 deadline;		/* ns; of the request at the head */
	u8 losses;		/* of the request at the head */
	struct hrtimer timer;
};

struct vh_mr {
	struct ib_mr ib;
	struct ib_umem *umem;
	struct ib_pd *pd;
	void *map;
	u8 *kva;
	u64 iova, len;
	int acc;
};

struct vh_ah {
	struct ib_ah ib;
	struct rdma_ah_attr attr;
};

struct vh_pd {
	struct ib_pd ib;
};

struct vh_uctx {
	struct ib_ucontext ib;
};

/* main.c */
extern uint vh_nhca, vh_nport, vh_mtu_bytes, vh_plt;
extern bool vh_trace;
extern struct vh_hca vh_hcas[];
extern struct mutex vh_config;	/* faults, plugging */
int vh_plug(struct vh_hca *hca);
void vh_unplug(struct vh_hca *hca);

static inline enum ib_mtu vh_mtu(void)
{
	return ib_mtu_int_to_enum(vh_mtu_bytes);
}

/* device.c */
extern const struct ib_device_ops vh_device_ops;

/* faults.c */
struct vh_stats {
	u64 ud, mc, ud_drop, rc, rnr, sa, rdma, wait, lost;
};
extern struct vh_stats vh_stats;

/* Live objects of each kind: all 0 again when a device has gone. */
enum vh_obj {
	VH_O_UCTX, VH_O_PD, VH_O_AH, VH_O_CQ, VH_O_SRQ, VH_O_QP, VH_O_MR,
	VH_O_MCAST, VH_O_NETDEV, VH_OBJS
};
extern atomic_t vh_objs[VH_OBJS];

void vh_faults_init(void);
void vh_faults_exit(void);
bool vh_lost(struct vh_port *p, enum vh_class c, enum vh_dir d);

static inline void vh_born(enum vh_obj o)
{
	atomic_inc(&vh_objs[o]);
}

static inline void vh_gone(enum vh_obj o)
{
	atomic_dec(&vh_objs[o]);
}

/* fabric.c */
struct vh_ctx {
	unsigned long flags;
	bool bh;
};

extern u64 vh_prefix;
void vh_lock(struct vh_ctx *c);
void vh_unlock(struct vh_ctx *c);
enum ib_port_state vh_port_state(const struct vh_port *p);
u16 vh_port_lid(const struct vh_port *p);
void vh_port_gid(const struct vh_port *p, union ib_gid *gid);
struct vh_port *vh_port_by_lid(u16 lid);
struct vh_port *vh_port_by_gid(const union ib_gid *gid);
int vh_port_index(const struct vh_port *p);
struct vh_qp *vh_qp_find(struct vh_port *p, u32 qpn);
int vh_qp_add(struct vh_qp *qp);
void vh_qp_del(struct vh_qp *qp);
void vh_qp_fail_all(struct vh_hca *hca);
bool vh_pkey_match(u16 a, u16 b);
int vh_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int vh_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
void vh_ud_send(struct vh_qp *qp, struct vh_swqe *w);
void vh_ud_packet(struct vh_qp *qp, struct vh_swqe *w, struct vh_seg *s, int ns,
		  u32 len);

/* sa.c */
extern u16 vh_sm[2];		/* LIDs of master and standby; 0: none */
extern u32 vh_group_mtu;
void vh_sm_sweep(struct vh_port *p);
void vh_sm_forget(struct vh_port *p);
void vh_sm_restart(void);
bool vh_sm_is(u16 lid);
bool vh_group_has(u16 mlid, const union ib_gid *mgid, struct vh_port *p);
void vh_sm_mad(struct vh_qp *qp, const struct vh_swqe *w,
	       const struct vh_seg *s, int ns);

/* verbs.c */
extern const struct ib_device_ops vh_verbs_ops, vh_srq_ops;
void vh_cq_push(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited);
void vh_event(struct ib_device *ib, void *obj, enum ib_event_type type);
int vh_events_init(void);
void vh_events_exit(void);

/* queue.c */
extern const struct ib_device_ops vh_queue_ops;
int vh_rq_alloc(struct vh_rq *rq, u32 n);
struct vh_rwqe *vh_rq_head(struct vh_qp *dst);
void vh_rq_complete(struct vh_qp *dst, struct ib_wc *wc, bool solicited);
void vh_rq_flush(struct vh_qp *qp);
int vh_scatter(const struct ib_sge *g, int ng, struct ib_pd *upd,
	       const struct vh_seg *s, int ns);
int vh_gather(struct vh_qp *qp, struct vh_swqe *w, struct vh_seg *s, int *ns);
int vh_deliver(struct vh_qp *dst, const struct vh_seg *s, int ns,
	       struct ib_wc *wc, bool solicited);
bool vh_can_recv(const struct vh_qp *qp);
void vh_qp_error(struct vh_qp *qp, int async);
void vh_sq_run(struct vh_qp *qp);
void vh_sq_reset(struct vh_qp *qp);
void vh_kick(void);
enum hrtimer_restart vh_qp_timer(struct hrtimer *t);
int vh_post_srq_recv(struct ib_srq *s, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad);

/* rc.c */
int vh_rc_request(struct vh_qp *qp, struct vh_swqe *w, struct vh_qp **peer,
		  enum vh_wait *why);
u64 vh_rc_patience(struct vh_qp *qp, enum vh_wait why);

/* uverbs.c */
extern const struct ib_device_ops vh_uverbs_ops;
void vh_uverbs_setup(struct ib_device *ib);
void *vh_mr_ptr(struct ib_pd *pd, u32 key, u64 addr, u64 len, int acc);
int vh_inline_get(const struct ib_send_wr *first, u8 **buf);

/* ipoib.c */
void vh_csum_fill(u8 *p, u32 len);
bool vh_csum_good(u8 *p, u32 len);
void vh_lso(struct vh_qp *qp, struct vh_swqe *w, const struct vh_seg *s, int ns);

/* netdev.c */
extern const struct ib_device_ops vh_netdev_ops;

#endif
