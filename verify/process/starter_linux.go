package process

import "syscall"

// endWithThread makes the kernel kill a process when the thread that started it
// ends.
func endWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
