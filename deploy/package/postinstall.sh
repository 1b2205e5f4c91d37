#!/bin/sh
# This script runs after the package has been installed or upgraded. It creates the
# user. It does not start or restart the node, because an operator must configure a
# new node first, and must restart the nodes of a cluster one at a time.
set -e

if ! getent passwd holdfast >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers /usr/lib/sysusers.d/holdfast.conf
	else
		getent group holdfast >/dev/null || groupadd --system holdfast
		useradd --system --gid holdfast --home-dir /var/lib/holdfast --no-create-home \
			--shell /usr/sbin/nologin --comment Holdfast holdfast
	fi
fi
chgrp holdfast /etc/holdfast
chmod 750 /etc/holdfast
if [ -e /etc/holdfast/holdfast.yaml ]; then # dpkg does not restore a file that the operator has deleted
	chgrp holdfast /etc/holdfast/holdfast.yaml
	chmod 640 /etc/holdfast/holdfast.yaml
fi
install -d -o holdfast -g holdfast -m 700 /var/lib/holdfast

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if systemctl is-active --quiet holdfast.service; then
		echo "holdfast: restart the node to use this version, one node at a time: systemctl restart holdfast"
	fi
fi
