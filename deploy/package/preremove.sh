#!/bin/sh
# This script stops the node before the package is removed, but not before an
# upgrade. For a removal, dpkg passes the argument "remove", and rpm passes 0, the
# number of versions that remain installed.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now holdfast.service
	fi
	;;
esac
