//go:build !linux

package process

import "syscall"

// endWithThread does nothing, because only Linux supports this: see Starter.Start.
func endWithThread(*syscall.SysProcAttr) {}
