//go:build !linux

package yield

import "runtime"

// poller yields to goroutines that are ready. It does not poll the network.
type poller struct{}

func (p *poller) poll() { runtime.Gosched() }
