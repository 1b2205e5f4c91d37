#!/bin/sh
# This script does not delete the data in /var/lib/holdfast and the secrets in
# /etc/holdfast, even with "dpkg --purge": an operator must first remove the node
# from its cluster.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
