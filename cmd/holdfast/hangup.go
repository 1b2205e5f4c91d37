package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// reloadAtHangup reads the certificates again at each SIGHUP, until stop is
// called. Many programs take SIGHUP as a request to reload.
func reloadAtHangup(stores tlsStores, log hclog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-hangups:
				if err := stores.reload(); err != nil {
					log.Error("SIGHUP: the node keeps the certificates that it has", "error", err)
				} else {
					log.Info("SIGHUP: certificates reloaded; flags and other files are read when the node starts")
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
		<-ended
	}
}
