#!/bin/sh
# The data in /var/lib/holdfast and the secrets in /etc/holdfast stay, also with
# "dpkg --purge": a node that lost its data must be removed from its cluster first.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
