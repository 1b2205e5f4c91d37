package cluster

// pause stops proposing until resume. quiet is closed once no entry of this office is
// in flight: then the log of this node ends with what its machine has applied,
// unless raft appends a change of the members. Requests are still accepted; they
// wait for resume, or go to the next leader if the office closes first. ok is false
// if the office has closed.
//
// Only one caller at a time may pause: see Node.transferring.
func (o *office) pause() (quiet <-chan struct{}, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, false
	}
	c := make(chan struct{})
	o.paused, o.quiet = true, c
	o.checkQuietLocked()
	return c, true
}

func (o *office) resume() {
	o.mu.Lock()
	o.paused, o.quiet = false, nil
	o.mu.Unlock()
	poke(o.work)
}

// checkQuietLocked closes the channel of pause if no entry is in flight.
func (o *office) checkQuietLocked() {
	if o.quiet != nil && len(o.inflight) == 0 && !o.taken {
		close(o.quiet)
		o.quiet = nil
	}
}
