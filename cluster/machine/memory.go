package machine

import "runtime/debug"

// The leader refuses commands that add data (fsm.Command.Grows) while the data
// set is larger than MaxMemory. It decides before the commands get into the
// log. So a limit that changes, or that differs between the nodes, has no
// effect on the result of an entry.

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

// TooLarge reports whether the data set is larger than MaxMemory.
func (a *Machine) TooLarge() bool {
	limit := a.MaxMemory()
	return limit > 0 && a.Bytes() > limit
}

// publishMemory updates the results of Bytes and MaxMemory. It is called with mu
// held, before the replies to an entry are sent: once a client knows that a key was
// deleted, that key must no longer count toward maxmemory.
func (a *Machine) publishMemory() {
	a.bytes.Store(a.m.Bytes())
	limit, set := a.m.MaxMemory()
	if !set {
		limit = -1
	}
	a.maxMemory.Store(limit)
}

// InMemory estimates the memory that a state takes, in bytes, from the size of
// its snapshot or backup file: one and a half times that size. A state of small
// keys takes more: see cluster.RoomForRestore.
func InMemory(file int64) float64 { return float64(file) * 1.5 }

// programMemory is the memory that every process needs in addition to its data
// and its garbage, in bytes: the program, its stacks and buffers, and the pages
// of the log that are not on the disk yet.
const programMemory = 48 << 20

// Usable returns how many bytes the data of a node may take if its process may
// use the given number of bytes of memory. The result is three quarters of that
// memory, but always leaves programMemory free. The rest of the memory is for
// garbage and for the program.
func Usable(memory uint64) float64 {
	return max(min(float64(memory)/4*3, float64(memory)-programMemory), 0)
}

// leastMaxMemory is the minimum of DefaultMaxMemory. The default must not be 0,
// because 0 would mean no limit.
const leastMaxMemory = 1 << 20

// DefaultMaxMemory returns the default of maxmemory for a process that may use
// the given number of bytes of memory. It is the largest size of a data set at
// which a backup of a full cluster can be restored into an empty cluster of the
// same size. During such a restore, a node holds the backup and the new state
// at the same time.
func DefaultMaxMemory(memory uint64) int64 {
	return max(int64(Usable(memory)/(1+InMemory(1))), leastMaxMemory)
}

// crowded reports whether two states together may take more than half of the
// memory that the Go runtime may use: a state of the given size, and the state
// in a snapshot file. If so, the node discards its state before it reads the
// snapshot of the leader, and everything that reads the state waits meanwhile.
// raftlog has already read the file back, so the file is known to be readable.
// The limit is lower than that of a restore (Usable), because an error has
// different costs: if the state is discarded needlessly, readers only wait, but
// if a restore is refused needlessly, the cluster stays without its data.
func crowded(bytes, file int64) bool {
	limit := debug.SetMemoryLimit(-1) // a negative number changes nothing
	return float64(bytes)+InMemory(file) > float64(limit)/2
}
