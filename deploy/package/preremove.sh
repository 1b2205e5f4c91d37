#!/bin/sh
# This script stops the node before the package is removed. The argument is "remove"
# for dpkg, or for rpm the number of versions that stay installed. An upgrade does
# not stop the node.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now holdfast.service
	fi
	;;
esac
