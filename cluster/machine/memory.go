package machine

// The leader refuses commands that add data (fsm.Command.Grows) while the data
// set is larger than it may be. It decides before the commands get into the log,
// so a limit that changes, or that differs between the nodes, has no effect on
// what an entry means.

// Bytes returns the size of the data set after the last entry, in bytes: see
// fsm.Machine.Bytes.
func (a *Machine) Bytes() int64 { return a.bytes.Load() }

// MaxMemory returns the size in bytes that the data set may have: the setting of
// the cluster, or else Config.MaxMemory. It is 0 for no limit.
func (a *Machine) MaxMemory() int64 {
	if setting := a.maxMemory.Load(); setting >= 0 {
		return setting
	}
	return a.cfg.MaxMemory
}

// TooLarge reports whether the data set is larger than it may be.
func (a *Machine) TooLarge() bool {
	limit := a.MaxMemory()
	return limit > 0 && a.Bytes() > limit
}

// publishMemory updates what Bytes and MaxMemory return. It is called with mu
// held, before the replies to an entry are sent: after a deletion, a client must
// not be refused because of what it deleted.
func (a *Machine) publishMemory() {
	a.bytes.Store(a.m.Bytes())
	limit, set := a.m.MaxMemory()
	if !set {
		limit = -1
	}
	a.maxMemory.Store(limit)
}
