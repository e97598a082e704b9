// SPDX-License-Identifier: GPL-2.0
/*
 * What a tester turns, and what is counted: /sys/kernel/debug/vhca. README.md
 * lists the files. A change of a port raises the events that follow from it.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "vhca.h"

struct vh_stats vh_stats;
atomic_t vh_objs[VH_OBJS];
static struct dentry *root;

static const char *const class_names[VH_CLASSES] = {
	[VH_UD] = "ud", [VH_RC] = "rc", [VH_MAD] = "mad",
};
static const char *const dir_names[VH_DIRS] = {
	[VH_TX] = "tx", [VH_RX] = "rx",
};
static const char *const obj_names[VH_OBJS] = {
	[VH_O_UCTX] = "ucontext", [VH_O_PD] = "pd", [VH_O_AH] = "ah",
	[VH_O_CQ] = "cq", [VH_O_SRQ] = "srq", [VH_O_QP] = "qp",
	[VH_O_MR] = "mr", [VH_O_MCAST] = "mcast", [VH_O_NETDEV] = "netdev",
};

/* Every n-th is lost, so a test knows how many. Under the fabric lock. */
bool vh_lost(struct vh_port *p, enum vh_class c, enum vh_dir d)
{
	u32 n = READ_ONCE(p->loss[c][d]);

	if (!n || ++p->loss_seq[c][d] % n)
		return false;
	p->lost[c][d]++;
	vh_stats.lost++;
	return true;
}

/* ---- a port before and after a change ---- */

struct view {
	enum ib_port_state state;
	u16 lid, sm_lid, pkeys[VH_MAX_PKEY];
	union ib_gid gid;
};

struct change {
	struct vh_ctx ctx;
	struct view before[VH_MAX_HCA][VH_MAX_PORT];
};

static void look(const struct vh_port *p, struct view *v)
{
	v->state = vh_port_state(p);
	v->lid = vh_port_lid(p);
	v->sm_lid = p->sm_lid;
	vh_port_gid(p, &v->gid);
	memcpy(v->pkeys, p->pkeys, sizeof(v->pkeys));
}

static void raise(struct vh_port *p, enum ib_event_type type)
{
	struct ib_event ev = {
		.device = &p->hca->dev->ib,
		.element.port_num = p->num,
		.event = type,
	};

	ib_dispatch_event(&ev);
}

/* A port that was and stays active tells what has changed; INIT is silent. */
static void tell(struct vh_port *p, const struct view *was, const struct view *is)
{
	bool a = was->state == IB_PORT_ACTIVE, b = is->state == IB_PORT_ACTIVE;

	if (memcmp(&was->gid, &is->gid, sizeof(is->gid)))
		raise(p, IB_EVENT_GID_CHANGE);
	if (memcmp(was->pkeys, is->pkeys, sizeof(is->pkeys)))
		raise(p, IB_EVENT_PKEY_CHANGE);
	if (a != b)
		raise(p, b ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR);
	if (!a || !b)
		return;
	if (was->lid != is->lid)
		raise(p, IB_EVENT_LID_CHANGE);
	if (was->sm_lid != is->sm_lid) {
		raise(p, IB_EVENT_SM_CHANGE);
		raise(p, IB_EVENT_CLIENT_REREGISTER);
	}
}

static struct change *change_begin(void)
{
	struct change *c = kmalloc(sizeof(*c), GFP_KERNEL);
	int i, k;

	if (!c)
		return NULL;
	mutex_lock(&vh_config);
	vh_lock(&c->ctx);
	for (i = 0; i < vh_nhca; i++)
		for (k = 0; k < vh_nport; k++)
			look(&vh_hcas[i].port[k], &c->before[i][k]);
	return c;
}

static void change_end(struct change *c)
{
	struct view is;
	int i, k;

	vh_kick();
	vh_unlock(&c->ctx);
	for (i = 0; i < vh_nhca; i++)
		for (k = 0; k < vh_nport && vh_hcas[i].dev; k++) {
			/* only writers change these: vh_config is enough */
			look(&vh_hcas[i].port[k], &is);
			tell(&vh_hcas[i].port[k], &c->before[i][k], &is);
		}
	mutex_unlock(&vh_config);
	kfree(c);
}

/* ---- numbers ---- */

#define NUMBER(name, fmt)						\
	DEFINE_DEBUGFS_ATTRIBUTE(name##_fops, name##_get, name##_set, fmt)

static int link_get(void *data, u64 *val)
{
	*val = ((struct vh_port *)data)->link;
	return 0;
}

static int link_set(void *data, u64 val)
{
	struct change *c = change_begin();
	struct vh_port *p = data;

	if (!c)
		return -ENOMEM;
	p->link = !!val;
	if (!p->link)
		vh_sm_forget(p);
	else if (p->hca->dev)
		vh_sm_sweep(p);
	change_end(c);
	return 0;
}
NUMBER(link, "%llu\n");

static bool lid_taken(u16 lid, const struct vh_port *but)
{
	int i, k;

	for (i = 0; i < vh_nhca; i++)
		for (k = 0; k < vh_nport; k++)
			if (&vh_hcas[i].port[k] != but &&
			    vh_hcas[i].port[k].lid == lid)
				return true;
	return false;
}

static int lid_get(void *data, u64 *val)
{
	*val = vh_port_lid(data);
	return 0;
}

static int lid_set(void *data, u64 val)
{
	struct vh_port *p = data;
	struct change *c;
	int ret = 0;

	if (!val || val >= VH_MLID_BASE)
		return -EINVAL;
	c = change_begin();
	if (!c)
		return -ENOMEM;
	if (vh_sm_is(val) || lid_taken(val, p))
		ret = -EEXIST;
	else
		p->lid = val;
	change_end(c);
	return ret;
}
NUMBER(lid, "%llu\n");

static int guid_get(void *data, u64 *val)
{
	*val = ((struct vh_port *)data)->guid;
	return 0;
}

static int guid_set(void *data, u64 val)
{
	struct change *c = change_begin();

	if (!c)
		return -ENOMEM;
	((struct vh_port *)data)->guid = val;
	change_end(c);
	return 0;
}
NUMBER(guid, "0x%016llx\n");

static int prefix_get(void *data, u64 *val)
{
	*val = vh_prefix;
	return 0;
}

static int prefix_set(void *data, u64 val)
{
	struct change *c = change_begin();

	if (!c)
		return -ENOMEM;
	vh_prefix = val;
	change_end(c);
	return 0;
}
NUMBER(prefix, "0x%016llx\n");

static int plug_get(void *data, u64 *val)
{
	*val = !!READ_ONCE(((struct vh_hca *)data)->dev);
	return 0;
}

static int plug_set(void *data, u64 val)
{
	struct vh_hca *hca = data;
	int ret = 0;

	mutex_lock(&vh_config);
	if (!val)
		vh_unplug(hca);
	else if (!hca->dev)
		ret = vh_plug(hca);
	mutex_unlock(&vh_config);
	return ret;
}
NUMBER(plug, "%llu\n");

/* ---- text ---- */

#define TEXT(name, write_fn)						\
	static int name##_open(struct inode *inode, struct file *file)	\
	{								\
		return single_open(file, name##_show, inode->i_private); \
	}								\
	static const struct file_operations name##_fops = {		\
		.owner = THIS_MODULE,					\
		.open = name##_open,					\
		.read = seq_read,					\
		.write = write_fn,					\
		.llseek = seq_lseek,					\
		.release = single_release,				\
	}

static void *file_data(struct file *file)
{
	return ((struct seq_file *)file->private_data)->private;
}

/* Words of a write, cut apart in buf; returns how many, or an error. */
static int words(const char __user *from, size_t len, char *buf, size_t size,
		 char **word, int max)
{
	char *p, *s = buf;
	int n = 0;

	if (len >= size)
		return -EINVAL;
	if (copy_from_user(buf, from, len))
		return -EFAULT;
	buf[len] = 0;
	while ((p = strsep(&s, " ,\t\n"))) {
		if (!*p)
			continue;
		if (n == max)
			return -EINVAL;
		word[n++] = p;
	}
	return n;
}

static int pkeys_show(struct seq_file *f, void *v)
{
	struct vh_port *p = f->private;
	int i;

	for (i = 0; i < VH_MAX_PKEY; i++)
		if (p->pkeys[i])
			seq_printf(f, "0x%04x\n", p->pkeys[i]);
	return 0;
}

static ssize_t pkeys_write(struct file *file, const char __user *from,
			   size_t len, loff_t *pos)
{
	struct vh_port *p = file_data(file);
	u16 pkeys[VH_MAX_PKEY] = {};
	char buf[256], *word[VH_MAX_PKEY];
	struct change *c;
	int i, n;

	n = words(from, len, buf, sizeof(buf), word, VH_MAX_PKEY);
	if (n < 0)
		return n;
	for (i = 0; i < n; i++)
		if (kstrtou16(word[i], 0, &pkeys[i]))
			return -EINVAL;
	c = change_begin();
	if (!c)
		return -ENOMEM;
	memcpy(p->pkeys, pkeys, sizeof(pkeys));
	change_end(c);
	return len;
}
TEXT(pkeys, pkeys_write);

static int sm_show(struct seq_file *f, void *v)
{
	if (!vh_sm[0])
		seq_puts(f, "none\n");
	else if (!vh_sm[1])
		seq_printf(f, "%u\n", vh_sm[0]);
	else
		seq_printf(f, "%u %u\n", vh_sm[0], vh_sm[1]);
	return 0;
}

static ssize_t sm_write(struct file *file, const char __user *from, size_t len,
			loff_t *pos)
{
	char buf[32], *word[2];
	struct change *c;
	u16 sm[2] = {};
	int i, k, n;

	n = words(from, len, buf, sizeof(buf), word, 2);
	if (n < 1)
		return n ?: -EINVAL;
	if (n > 1 || strcmp(word[0], "none"))
		for (i = 0; i < n; i++)
			if (kstrtou16(word[i], 0, &sm[i]) || !sm[i] ||
			    sm[i] >= VH_MLID_BASE || lid_taken(sm[i], NULL))
				return -EINVAL;
	c = change_begin();
	if (!c)
		return -ENOMEM;
	if (sm[0] != vh_sm[0])
		vh_sm_restart();
	memcpy(vh_sm, sm, sizeof(sm));
	for (i = 0; i < vh_nhca; i++)
		for (k = 0; k < vh_nport && vh_hcas[i].dev; k++)
			vh_sm_sweep(&vh_hcas[i].port[k]);
	change_end(c);
	return len;
}
TEXT(sm, sm_write);

static const struct {
	const char *name;
	enum ib_event_type type;
} event_names[] = {
	{ "client_reregister", IB_EVENT_CLIENT_REREGISTER },
	{ "sm_change", IB_EVENT_SM_CHANGE },
	{ "lid_change", IB_EVENT_LID_CHANGE },
	{ "pkey_change", IB_EVENT_PKEY_CHANGE },
	{ "gid_change", IB_EVENT_GID_CHANGE },
	{ "port_active", IB_EVENT_PORT_ACTIVE },
	{ "port_err", IB_EVENT_PORT_ERR },
	{ "device_fatal", IB_EVENT_DEVICE_FATAL },
};

static int event_show(struct seq_file *f, void *v)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(event_names); i++)
		seq_printf(f, "%s\n", event_names[i].name);
	return 0;
}

static ssize_t event_write(struct file *file, const char __user *from,
			   size_t len, loff_t *pos)
{
	struct vh_port *p = file_data(file);
	ssize_t ret = -EINVAL;
	char buf[32], *word;
	int i;

	i = words(from, len, buf, sizeof(buf), &word, 1);
	if (i < 1)
		return i ?: -EINVAL;
	mutex_lock(&vh_config);
	for (i = 0; i < ARRAY_SIZE(event_names) && p->hca->dev; i++)
		if (!strcmp(word, event_names[i].name)) {
			raise(p, event_names[i].type);
			ret = len;
		}
	mutex_unlock(&vh_config);
	return ret;
}
TEXT(event, event_write);

static int lost_show(struct seq_file *f, void *v)
{
	struct vh_port *p = f->private;
	int c, d;

	for (c = 0; c < VH_CLASSES; c++)
		for (d = 0; d < VH_DIRS; d++)
			seq_printf(f, "%s_%s %llu\n", class_names[c],
				   dir_names[d], p->lost[c][d]);
	return 0;
}
TEXT(lost, NULL);

static int stats_show(struct seq_file *f, void *v)
{
	struct vh_stats s;
	struct vh_ctx c;

	vh_lock(&c);
	s = vh_stats;
	vh_unlock(&c);
	seq_printf(f, "ud=%llu mc=%llu ud_drop=%llu rc=%llu rnr=%llu sa=%llu rdma=%llu wait=%llu lost=%llu\n",
		   s.ud, s.mc, s.ud_drop, s.rc, s.rnr, s.sa, s.rdma, s.wait,
		   s.lost);
	return 0;
}
TEXT(stats, NULL);

static int objects_show(struct seq_file *f, void *v)
{
	int i;

	for (i = 0; i < VH_OBJS; i++)
		seq_printf(f, "%s %d\n", obj_names[i], atomic_read(&vh_objs[i]));
	return 0;
}
TEXT(objects, NULL);

/* ---- the tree ---- */

static void __init add_port(struct vh_port *p, struct dentry *parent)
{
	struct dentry *dir, *loss;
	char name[16];
	int c, d;

	snprintf(name, sizeof(name), "port%u", p->num);
	dir = debugfs_create_dir(name, parent);
	debugfs_create_file_unsafe("link", 0600, dir, p, &link_fops);
	debugfs_create_file_unsafe("lid", 0600, dir, p, &lid_fops);
	debugfs_create_file_unsafe("guid", 0600, dir, p, &guid_fops);
	debugfs_create_file("pkeys", 0600, dir, p, &pkeys_fops);
	debugfs_create_file("event", 0600, dir, p, &event_fops);
	debugfs_create_file("lost", 0400, dir, p, &lost_fops);
	debugfs_create_u32("delay_us", 0600, dir, &p->delay_us);
	loss = debugfs_create_dir("loss", dir);
	for (c = 0; c < VH_CLASSES; c++)
		for (d = 0; d < VH_DIRS; d++) {
			snprintf(name, sizeof(name), "%s_%s", class_names[c],
				 dir_names[d]);
			debugfs_create_u32(name, 0600, loss, &p->loss[c][d]);
		}
}

static void __init add_hca(struct vh_hca *hca)
{
	struct dentry *dir, *offer;
	char name[16];
	int i;

	snprintf(name, sizeof(name), "vhca%d", hca->idx);
	dir = debugfs_create_dir(name, root);
	debugfs_create_file_unsafe("plug", 0600, dir, hca, &plug_fops);
	debugfs_create_x64("node_guid", 0600, dir, &hca->node_guid);
	offer = debugfs_create_dir("offer", dir);
	debugfs_create_bool("csum", 0600, offer, &hca->offer.csum);
	debugfs_create_bool("tso", 0600, offer, &hca->offer.tso);
	debugfs_create_bool("connected", 0600, offer, &hca->offer.connected);
	debugfs_create_bool("srq", 0600, offer, &hca->offer.srq);
	for (i = 0; i < vh_nport; i++)
		add_port(&hca->port[i], dir);
}

/* Without debugfs there are no faults; the HCAs work all the same. */
void __init vh_faults_init(void)
{
	int i;

	root = debugfs_create_dir("vhca", NULL);
	debugfs_create_file("sm", 0600, root, NULL, &sm_fops);
	debugfs_create_file_unsafe("prefix", 0600, root, NULL, &prefix_fops);
	debugfs_create_u32("group_mtu", 0600, root, &vh_group_mtu);
	debugfs_create_file("stats", 0400, root, NULL, &stats_fops);
	debugfs_create_file("objects", 0400, root, NULL, &objects_fops);
	for (i = 0; i < vh_nhca; i++)
		add_hca(&vh_hcas[i]);
}

void vh_faults_exit(void)
{
	debugfs_remove_recursive(root);
}
