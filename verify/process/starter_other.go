//go:build !linux

package process

import "syscall"

// endWithThread does nothing, because only Linux offers it: see Starter.Start.
func endWithThread(*syscall.SysProcAttr) {}
