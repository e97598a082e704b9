// SPDX-License-Identifier: GPL-2.0
/*
 * User processes: how their verbs reach us, and their memory.
 *
 * The device calls itself qib with uverbs ABI 1 (main.c). rdma-core's
 * ipathverbs provider then maps no queue, but makes every verb, poll and post
 * included, a uverbs command. So a user's QP is served by the same functions
 * as a kernel one; only its memory differs: SGEs name registered regions,
 * whose pages are pinned and mapped into the kernel.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>
#include "vhca.h"

/* Under the fabric lock: copies into and out of regions run under it. */
static struct vh_mr *mrs[VH_MAX_MR];
static u32 mr_hint = 1;

/* Where a range of a region is, or NULL if it may not be used so. */
void *vh_mr_ptr(struct ib_pd *pd, u32 key, u64 addr, u64 len, int acc)
{
	struct vh_mr *mr = key >> 8 < VH_MAX_MR ? mrs[key >> 8] : NULL;

	if (!mr || mr->ib.lkey != key || mr->pd != pd || (acc & ~mr->acc) ||
	    addr < mr->iova || len > mr->len || addr - mr->iova > mr->len - len)
		return NULL;
	return mr->kva + (addr - mr->iova);
}

static struct ib_mr *get_dma_mr(struct ib_pd *pd, int acc)
{
	struct vh_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	vh_born(VH_O_MR);
	return &mr->ib;
}

/* Pinned pages, mapped as one piece: a region is a linear kernel range. */
static int mr_map(struct vh_mr *mr)
{
	size_t i = 0, n = ib_umem_num_pages(mr->umem);
	struct sg_page_iter it;
	struct page **pages;

	pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for_each_sgtable_page(&mr->umem->sgt_append.sgt, &it, 0)
		if (i < n)
			pages[i++] = sg_page_iter_page(&it);
	mr->map = i == n ? vmap(pages, n, VM_MAP, PAGE_KERNEL) : NULL;
	kvfree(pages);
	if (!mr->map)
		return -ENOMEM;
	mr->kva = (u8 *)mr->map + ib_umem_offset(mr->umem);
	return 0;
}

static int mr_add(struct vh_mr *mr)
{
	static u8 generation;
	struct vh_ctx c;
	int i, ret = 0;

	vh_lock(&c);
	for (i = 1; i < VH_MAX_MR; i++) {
		if (++mr_hint >= VH_MAX_MR)
			mr_hint = 1;
		if (!mrs[mr_hint])
			break;
	}
	if (i < VH_MAX_MR) {
		mrs[mr_hint] = mr;
		mr->ib.lkey = mr_hint << 8 | generation++;
		mr->ib.rkey = mr->ib.lkey;
	} else {
		ret = -ENOSPC;
	}
	vh_unlock(&c);
	return ret;
}

static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 va,
				 int acc, struct ib_udata *udata)
{
	struct vh_mr *mr;
	int ret;

	if (acc & (IB_ACCESS_ON_DEMAND | IB_ZERO_BASED | IB_ACCESS_MW_BIND))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pd = pd;
	mr->iova = va;
	mr->len = len;
	mr->acc = acc;
	mr->umem = ib_umem_get(pd->device, start, len, acc);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		goto no_umem;
	}
	ret = mr_map(mr);
	if (ret)
		goto no_map;
	ret = mr_add(mr);
	if (ret)
		goto no_key;
	vh_born(VH_O_MR);
	return &mr->ib;

no_key:
	vunmap(mr->map);
no_map:
	ib_umem_release(mr->umem);
no_umem:
	kfree(mr);
	return ERR_PTR(ret);
}

static int dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct vh_mr *mr = TO(vh_mr, ib, ibmr);
	struct vh_ctx c;

	if (mr->umem) {
		vh_lock(&c);
		mrs[ibmr->lkey >> 8] = NULL;
		vh_unlock(&c);
		vunmap(mr->map);
		ib_umem_release(mr->umem);
	}
	kfree(mr);
	vh_gone(VH_O_MR);
	return 0;
}

/*
 * The inline data of all requests of a user, one after the other in *buf;
 * copied before the fabric lock is taken, as the copy may fault.
 */
int vh_inline_get(const struct ib_send_wr *first, u8 **buf)
{
	const struct ib_send_wr *wr;
	u32 len, total = 0;
	int i;

	for (wr = first; wr; wr = wr->next) {
		if ((u32)wr->num_sge > VH_MAX_SGE)
			return -EINVAL;
		if (!(wr->send_flags & IB_SEND_INLINE))
			continue;
		for (i = 0, len = 0; i < wr->num_sge; i++) {
			if (wr->sg_list[i].length > VH_INLINE)
				return -EINVAL;
			len += wr->sg_list[i].length;
		}
		if (len > VH_INLINE)
			return -EINVAL;
		total += len;
	}
	if (!total)
		return 0;
	*buf = kvmalloc(total, GFP_KERNEL);
	if (!*buf)
		return -ENOMEM;
	for (wr = first, total = 0; wr; wr = wr->next)
		for (i = 0; (wr->send_flags & IB_SEND_INLINE) && i < wr->num_sge; i++) {
			if (copy_from_user(*buf + total,
					   u64_to_user_ptr(wr->sg_list[i].addr),
					   wr->sg_list[i].length)) {
				kvfree(*buf);
				*buf = NULL;
				return -EFAULT;
			}
			total += wr->sg_list[i].length;
		}
	return 0;
}

static int alloc_ucontext(struct ib_ucontext *u, struct ib_udata *udata)
{
	vh_born(VH_O_UCTX);
	return 0;
}

static void dealloc_ucontext(struct ib_ucontext *u)
{
	vh_gone(VH_O_UCTX);
}

/* Nothing is mapped, so a device may go while processes hold it open. */
static void disassociate_ucontext(struct ib_ucontext *u)
{
}

void vh_uverbs_setup(struct ib_device *ib)
{
	ib->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
		BIT_ULL(IB_USER_VERBS_CMD_POST_RECV) |
		BIT_ULL(IB_USER_VERBS_CMD_POST_SRQ_RECV) |
		BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) |
		BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
}

const struct ib_device_ops vh_uverbs_ops = {
	.alloc_ucontext = alloc_ucontext,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate_ucontext,
	.get_dma_mr = get_dma_mr,
	.reg_user_mr = reg_user_mr,
	.dereg_mr = dereg_mr,
	INIT_RDMA_OBJ_SIZE(ib_ucontext, vh_uctx, ib),
};
