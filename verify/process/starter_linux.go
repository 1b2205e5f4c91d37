package process

import "syscall"

// endWithThread lets the kernel kill a process when the thread that has started
// it ends.
func endWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
