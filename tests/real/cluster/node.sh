#!/bin/bash
# The first process of a node, in namespaces of its own: makes the place look like a machine, starts its services, reaps.
# In the environment: NAME, ADDRESS, DIRECTORY (the node's), STATE (the cluster's), DISK_MIB, FREEZER (a control group or
# nothing), KEEP (directories below the node's own mounts that must stay visible, one a line), SLURM_CONF, SLURMD (options).
set -e
hostname "$NAME"

over() { [ ! -e "$2" ] || mount --bind "$1" "$2"; }    # FILE WHERE: only where the system has such a file
over "$STATE/etc/hosts" /etc/hosts
over "$DIRECTORY/hostname" /etc/hostname
over "$STATE/etc/nothing" /etc/resolv.conf             # an unknown name fails at once
over "$STATE/etc/nothing" "$HOME/.bashrc"               # what is in it may be slow, and each ssh command reads it
over "$STATE/etc/ssh_config" /etc/ssh/ssh_config
if [ -n "$FREEZER" ]; then mount --bind "$FREEZER" /sys/fs/cgroup/freezer; fi

# What lies under /tmp of the head and has to be seen is carried over to the node's own /tmp, by way of another place.
mkdir -p "$DIRECTORY/carried"
mount -t tmpfs -o mode=755,size=1m carried "$DIRECTORY/carried"
n=0
while read -r kept; do
    if [ -z "$kept" ]; then continue; fi
    mkdir "$DIRECTORY/carried/$n"; mount --bind "$kept" "$DIRECTORY/carried/$n"; n=$((n + 1))
done <<<"$KEEP"
mount -t tmpfs -o mode=755,size=64m run /run
mkdir -p /run/sshd /run/lock
mount -t tmpfs -o mode=1777,size=1g tmp /tmp
mount -t tmpfs -o mode=1777,size=1g shm /dev/shm
mount -t tmpfs -o "mode=1777,size=${DISK_MIB}m" disk "$STATE/disk"
n=0
while read -r kept; do
    if [ -z "$kept" ]; then continue; fi
    mkdir -p "$kept"; mount --bind "$DIRECTORY/carried/$n" "$kept"; n=$((n + 1))
done <<<"$KEEP"
umount -R "$DIRECTORY/carried"

# The head plugs the cable in.
for _ in $(seq 500); do if ip link show eth0 >/dev/null 2>&1; then break; fi; sleep .02; done
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || true
ethtool -K eth0 tx off >/dev/null                      # whole checksums and frames of their size, for a relay on the way
ip link set lo up
ip address add "$ADDRESS/24" dev eth0
ip link set eth0 up

cd /
/usr/sbin/sshd -f "$STATE/etc/sshd_config" -E "$DIRECTORY/sshd.log" -o ListenAddress="$ADDRESS"
eval "/usr/sbin/slurmd $SLURMD"
: >"$DIRECTORY/ready"
trap : TERM INT HUP
set +e
mkfifo /run/forever
exec 3<>/run/forever
while :; do read -r -u 3 _; done                       # no child of our own to wait for; orphans are reaped meanwhile
