// SPDX-License-Identifier: GPL-2.0
/*
 * vhca - InfiniBand HCAs in memory (link layer IB), to test what runs on top.
 *
 * Module parameters, and devices that are plugged in and out. All ports are on
 * one subnet, with a subnet manager; packets are copied from the sender's
 * memory to the receiver's under one lock.
 */
#include <linux/module.h>
#include <linux/platform_device.h>
#include "vhca.h"

uint vh_nhca = 2;
module_param_named(ndev, vh_nhca, uint, 0444);
MODULE_PARM_DESC(ndev, "number of HCAs: 1..16");
uint vh_nport = 1;
module_param_named(nport, vh_nport, uint, 0444);
MODULE_PARM_DESC(nport, "ports of each HCA: 1..2");
uint vh_mtu_bytes = 2048;
module_param_named(mtu, vh_mtu_bytes, uint, 0444);
MODULE_PARM_DESC(mtu, "IB MTU of every port: 256..4096");
static ushort pkeys[VH_MAX_PKEY] = { 0xffff, 0x8001, 0x8002 };
static int npkeys = 3;
module_param_array(pkeys, ushort, &npkeys, 0444);
MODULE_PARM_DESC(pkeys, "first P_Keys of every port");
static bool use_srq = true;
module_param(use_srq, bool, 0444);
MODULE_PARM_DESC(use_srq, "offer shared receive queues");
static bool csum;
module_param(csum, bool, 0444);
MODULE_PARM_DESC(csum, "offer UD IP checksum offload");
static bool tso;
module_param(tso, bool, 0444);
MODULE_PARM_DESC(tso, "offer UD TCP segmentation offload (needs csum)");
static bool connected = true;
module_param(connected, bool, 0444);
MODULE_PARM_DESC(connected, "leave IPoIB to ib_ipoib, with connected mode; 0: enhanced, as mlx5");
static bool hfi1;
module_param(hfi1, bool, 0444);
MODULE_PARM_DESC(hfi1, "pose as hfi1 (provider hfi1verbs) instead of qib (ipathverbs)");
uint vh_plt = 0x12;
module_param_named(plt, vh_plt, uint, 0644);
MODULE_PARM_DESC(plt, "packet life time of path records; the CM's ACK timeout is one more");
bool vh_trace;
module_param_named(trace, vh_trace, bool, 0644);
MODULE_PARM_DESC(trace, "log SA requests and failed send requests");

DEFINE_MUTEX(vh_config);
struct vh_hca vh_hcas[VH_MAX_HCA];
static struct platform_device *pdev;
static struct ib_device_ops owner_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_QIB,	/* see uverbs.c */
	.uverbs_abi_ver = 1,
};

/* Callers hold vh_config, or are alone. */
int vh_plug(struct vh_hca *hca)
{
	struct vh_dev *d = ib_alloc_device(vh_dev, ib);
	char name[IB_DEVICE_NAME_MAX];
	struct vh_ctx c;
	int i, ret;

	if (!d)
		return -ENOMEM;
	snprintf(name, sizeof(name), "vhca%d", hca->idx);
	strscpy(d->ib.node_desc, name, sizeof(d->ib.node_desc));
	d->hca = hca;
	d->offer = hca->offer;
	d->ib.node_guid = cpu_to_be64(hca->node_guid);
	d->ib.node_type = RDMA_NODE_IB_CA;
	d->ib.phys_port_cnt = vh_nport;
	d->ib.num_comp_vectors = 1;
	d->ib.local_dma_lkey = 0;
	d->ib.dev.parent = &pdev->dev;
	vh_uverbs_setup(&d->ib);
	ib_set_device_ops(&d->ib, &owner_ops);
	ib_set_device_ops(&d->ib, &vh_device_ops);
	ib_set_device_ops(&d->ib, &vh_verbs_ops);
	ib_set_device_ops(&d->ib, &vh_queue_ops);
	ib_set_device_ops(&d->ib, &vh_uverbs_ops);
	if (d->offer.srq)
		ib_set_device_ops(&d->ib, &vh_srq_ops);
	if (!d->offer.connected)
		ib_set_device_ops(&d->ib, &vh_netdev_ops);

	vh_lock(&c);
	hca->dev = d;
	for (i = 0; i < vh_nport; i++) {
		memset(hca->port[i].cnt, 0, sizeof(hca->port[i].cnt));
		vh_sm_sweep(&hca->port[i]);
	}
	vh_unlock(&c);
	ret = ib_register_device(&d->ib, name, NULL);
	if (ret) {
		vh_lock(&c);
		hca->dev = NULL;
		vh_unlock(&c);
		ib_dealloc_device(&d->ib);
	}
	return ret;
}

void vh_unplug(struct vh_hca *hca)
{
	struct vh_dev *d = hca->dev;
	struct vh_ctx c;
	int i;

	if (!d)
		return;
	vh_qp_fail_all(hca);
	ib_unregister_device(&d->ib);
	vh_lock(&c);
	hca->dev = NULL;
	for (i = 0; i < vh_nport; i++)
		vh_sm_forget(&hca->port[i]);
	vh_unlock(&c);
	ib_dealloc_device(&d->ib);
}

static void __init hca_init(struct vh_hca *hca, int idx)
{
	int i, k;

	hca->idx = idx;
	hca->node_guid = 0x0002c90300000010ull + idx * 0x100;
	hca->offer = (struct vh_offer){
		.csum = csum, .tso = tso, .connected = connected, .srq = use_srq,
	};
	for (i = 0; i < vh_nport; i++) {
		struct vh_port *p = &hca->port[i];

		p->hca = hca;
		p->num = i + 1;
		p->link = true;
		p->lid = idx * vh_nport + i + 1;
		p->guid = hca->node_guid + 1 + i;
		for (k = 0; k < npkeys; k++)
			p->pkeys[k] = pkeys[k];
	}
}

static void unplug_all(void)
{
	int i;

	for (i = 0; i < vh_nhca; i++)
		vh_unplug(&vh_hcas[i]);
}

static int __init vh_init(void)
{
	int i, ret;

	if (!vh_nhca || vh_nhca > VH_MAX_HCA || !vh_nport ||
	    vh_nport > VH_MAX_PORT ||
	    ib_mtu_enum_to_int(vh_mtu()) != vh_mtu_bytes)
		return -EINVAL;
	if (hfi1)
		owner_ops.driver_id = RDMA_DRIVER_HFI1;
	vh_group_mtu = vh_mtu_bytes;
	for (i = 0; i < vh_nhca; i++)
		hca_init(&vh_hcas[i], i);
	ret = vh_events_init();
	if (ret)
		return ret;
	pdev = platform_device_register_simple("vhca", -1, NULL, 0);
	if (IS_ERR(pdev)) {
		ret = PTR_ERR(pdev);
		goto no_pdev;
	}
	for (i = 0; i < vh_nhca; i++) {
		ret = vh_plug(&vh_hcas[i]);
		if (ret)
			goto unplug;
	}
	vh_faults_init();
	return 0;

unplug:
	unplug_all();
	platform_device_unregister(pdev);
no_pdev:
	vh_events_exit();
	return ret;
}

static void __exit vh_exit(void)
{
	int i;

	vh_faults_exit();
	unplug_all();
	platform_device_unregister(pdev);
	vh_events_exit();
	for (i = 0; i < VH_OBJS; i++)
		WARN(atomic_read(&vh_objs[i]), "vhca: %d objects of kind %d left\n",
		     atomic_read(&vh_objs[i]), i);
}

module_init(vh_init);
module_exit(vh_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("virtual InfiniBand HCA for tests");
