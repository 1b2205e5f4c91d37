package cluster

// pause stops the proposer until resume is called. It closes quiet once no
// entry of this leadership is in flight. From then on this node's log ends with
// the last entry that its state machine has applied, unless raft appends a
// change of the members. The leadership still accepts groups. They wait for
// resume, or go to the next leader if the leadership closes first. ok is false
// if the leadership has closed.
//
// Only one caller at a time may pause a leadership. Node.transferring enforces
// this.
func (ld *leadership) pause() (quiet <-chan struct{}, ok bool) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.closed {
		return nil, false
	}
	c := make(chan struct{})
	ld.paused, ld.quiet = true, c
	ld.checkQuietLocked()
	return c, true
}

func (ld *leadership) resume() {
	ld.mu.Lock()
	ld.paused, ld.quiet = false, nil
	ld.mu.Unlock()
	signal(ld.work)
}

// checkQuietLocked closes the channel that pause returned if no entry is in
// flight. The caller holds ld.mu.
func (ld *leadership) checkQuietLocked() {
	if ld.quiet != nil && len(ld.inflight) == 0 && !ld.taken {
		close(ld.quiet)
		ld.quiet = nil
	}
}
