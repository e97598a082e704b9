# SPDX-License-Identifier: GPL-2.0
# What the checks share; read with `.` by each of them. They run as root in the lab's VM and replace
# its vhca: VHCA_KO names the module. Each prints `ok NAME` or `FAILED NAME why`.
D=/sys/kernel/debug/vhca
KO=${VHCA_KO:-${0%/*}/../vhca.ko}
A=10.77.0.1 B=10.77.0.2
status=0

die() {
	echo "$*"
	exit 1
}

# check NAME FUNCTION...: the function runs in a subshell; what it said last is why it failed.
check() {
	name=$1
	shift
	if why=$("$@" 2>&1); then
		echo "ok $name"
	else
		echo "FAILED $name: $(echo "$why" | tail -n 3 | tr '\n' ' ')"
		status=1
	fi
}

# within SECONDS COMMAND...: until it succeeds.
within() {
	end=$(($(cut -d. -f1 /proc/uptime) + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(cut -d. -f1 /proc/uptime)" -lt $end ] || return 1
		sleep 0.2
	done
}

not() { ! "$@"; }
peer() { ip netns exec peer "$@"; }
port() { echo $D/vhca$1/port1; }
set_to() { echo "$2" >"$1" || die "$1 does not take $2"; }
ping_peer() { busybox ping -c 1 -W 1 $B; }
sysfs() { cat /sys/class/infiniband/vhca$1/ports/1/$2; }
carrier() { ip -o link show ib0 | grep -q LOWER_UP; }
peer_carrier() { ip -n peer -o link show ib1 | grep -q LOWER_UP; }
changes() { cat /sys/class/net/ib0/carrier_changes; }
object() { awk -v k="$1" '$1 == k { print $2 }' $D/objects; }

unload() {
	ip netns del peer 2>/dev/null
	[ ! -d /sys/module/vhca ] || rmmod vhca
}

# lay [PARAMETER=VALUE...]: vhca afresh; ib0 here and ib1 in the namespace `peer` reach each other.
lay() {
	unload
	insmod "$KO" "$@" || die "insmod refused: $*"
	within 10 ip link show ib1 || die "ib_ipoib made no ib1"
	ip netns add peer
	ip link set ib1 netns peer
	ip address add $A/24 dev ib0
	ip -n peer address add $B/24 dev ib1
	ip link set ib0 up
	ip -n peer link set lo up
	ip -n peer link set ib1 up
	within 20 ping_peer || die "no ping after loading with: $*"
}
