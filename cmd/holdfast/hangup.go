package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// surviveHangup makes the process ignore SIGHUP, except for a log line, until
// stop is called. Many programs take SIGHUP as a request to reload.
func surviveHangup(log hclog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP reloads nothing: flags and files are read when the node starts")
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
	}
}
