package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

// DiskStatus is the state of the file system that contains a node's data
// directory. All fields are zero if the state is not known.
type DiskStatus struct {
	// DiskFree and DiskTotal are the bytes that the node may still write, and
	// the size of the file system. DiskReserve is Options.DiskReserve, or its
	// default for this file system.
	DiskFree    int64 `json:"disk_free_bytes,omitempty"`
	DiskTotal   int64 `json:"disk_total_bytes,omitempty"`
	DiskReserve int64 `json:"disk_reserve_bytes,omitempty"`
	// DiskLow is set while less than the reserve is free.
	DiskLow bool `json:"disk_low,omitempty"`
	// DiskFull is set while so little is free that the node, as a follower,
	// accepts no entries.
	DiskFull bool `json:"disk_full,omitempty"`
	// WritesRefused is, on the leader, the error for commands that add data. It
	// is "" while the cluster accepts them.
	WritesRefused string `json:"writes_refused,omitempty"`
}

// The reserve has three purposes: deletions, releases and renewals of locks
// still need room in the log, a snapshot needs room before the log can become
// shorter, and a log segment is allocated as a whole.
const (
	maxDefaultReserve = 1 << 30
	// logSegment is the default size of a log segment, in bytes. A default
	// reserve is at least two of them.
	logSegment = 64 << 20
	// reserveMargin is the room for everything else that a node writes while a
	// new segment is allocated, in bytes.
	reserveMargin = 8 << 20
	// diskEvery is the interval of the measurements. A leader that writes 400
	// MB/s writes 100 MB meanwhile.
	diskEvery = 250 * time.Millisecond
	// handOverEvery is the minimum time between two attempts of a leader to
	// give its leadership to a node with more room.
	handOverEvery = 10 * time.Second
)

// diskMonitor measures the free space of the data directory's file system, and
// decides what the node refuses when there is little:
//
//   - Below the reserve, a leader gives its leadership to a voter with room, if
//     a majority of the voters has room. Otherwise, and until that has
//     succeeded, it refuses commands that add data (fsm.Command.Grows) before
//     they get into the log. All other commands work.
//   - A leader also refuses them if so many voters are below their reserve that
//     the rest is no majority. If a majority can store no entries, then no
//     command that changes data can be committed, not even a deletion. A few voters that are short of room do not stop
//     the cluster.
//   - A follower with less room than the next log segment needs accepts no more
//     entries and no snapshots of a leader (see scarce). Its log stays intact, and
//     the node continues to vote and to serve reads. It catches up when there is room.
//
// All of this ends by itself when there is room again.
type diskMonitor struct {
	*environment
	raft   *raftInstance
	health *healthBook
	// transfer transfers leadership to the node next.
	transfer func(ctx context.Context, next string, reply *adminReply) error

	mu      sync.Mutex
	status  DiskStatus // guarded by mu
	failing bool       // the last measurement failed; guarded by mu

	segment  int64                  // size of a log segment, in bytes
	handOver time.Duration          // monotonic time before which leadership is not handed over
	failed   map[string]int         // hand-overs to each voter that failed; belongs to keep
	refusal  atomic.Pointer[string] // nil if commands that add data are accepted
	little   atomic.Pointer[string] // nil if a follower's entries are accepted
}

func newDiskMonitor(e *environment, r *raftInstance) *diskMonitor {
	d := &diskMonitor{environment: e, raft: r, segment: int64(e.cfg.Options.SegmentBytes),
		failed: make(map[string]int)}
	if d.segment == 0 {
		d.segment = logSegment
	}
	d.measure()
	return d
}

// diskSpace returns the bytes that a process without special rights may still
// write to the file system of dir, and the size of that file system.
func diskSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// reserve returns the reserve for a file system of a size.
func (d *diskMonitor) reserve(total int64) int64 {
	if r := d.cfg.Options.DiskReserve; r >= 0 {
		return r
	}
	return max(min(total/20, maxDefaultReserve), 2*d.segment)
}

// floor returns the free bytes below which a follower accepts no entries.
func (d *diskMonitor) floor(reserve int64) int64 { return min(d.segment+reserveMargin, reserve) }

// measure updates the status of this node's disk.
func (d *diskMonitor) measure() DiskStatus {
	free, total, err := d.cfg.DiskSpace(d.cfg.DataDir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if !d.failing {
			d.log.Warn("cannot determine the free space of the disk", "dir", d.cfg.DataDir, "error", err)
		}
		d.failing, d.status = true, DiskStatus{}
		d.little.Store(nil)
		return d.status
	}
	reserve, was, wasFull := d.reserve(total), d.status.DiskLow, d.status.DiskFull
	d.failing = false
	d.status = DiskStatus{DiskFree: free, DiskTotal: total, DiskReserve: reserve, DiskLow: free < reserve}
	// The status must not change back and forth while the free space is near the
	// reserve.
	if was && free < reserve+reserve/16 {
		d.status.DiskLow = true
	}
	switch {
	case d.status.DiskLow && !was:
		d.log.Warn("the disk is almost full: as leader, this node refuses commands that add data",
			"dir", d.cfg.DataDir, "free", size(free), "total", size(total), "reserve", size(reserve),
			"remedy", "free space or enlarge the disk")
	case was && !d.status.DiskLow:
		d.log.Info("the disk has room again", "dir", d.cfg.DataDir, "free", size(free), "reserve", size(reserve))
	}
	floor := d.floor(reserve)
	d.status.DiskFull = free < floor || wasFull && free < min(floor+floor/2, reserve+reserve/16)
	if d.status.DiskFull {
		text := fmt.Sprintf("the disk has only %s free, and the next file of the log may need %s", size(free),
			size(floor))
		d.little.Store(&text)
	} else {
		d.little.Store(nil)
	}
	return d.status
}

// own returns the status of this node's disk as last measured.
func (d *diskMonitor) own() DiskStatus {
	d.mu.Lock()
	st := d.status
	d.mu.Unlock()
	if d.raft.leads() {
		st.WritesRefused = d.full()
	}
	return st
}

// full returns the error for commands that add data, or "". On a node that does
// not lead, it is what the leader last reported.
func (d *diskMonitor) full() string {
	if p := d.refusal.Load(); p != nil {
		return *p
	}
	return ""
}

// WritesRefused returns why the cluster refuses commands that add data, as far as
// this node knows, or "".
func (n *Node) WritesRefused() string { return n.disk.full() }

// scarce returns an error while there is too little room for entries of a
// leader. It is called for every append of a follower, and for every write of a
// snapshot that a leader sends.
func (d *diskMonitor) scarce() error {
	if p := d.little.Load(); p != nil {
		return fmt.Errorf("no room for entries: %s: free space or enlarge the disk", *p)
	}
	return nil
}

// keep measures the disk at intervals and acts on the result, until the node
// stops.
func (d *diskMonitor) keep() {
	t := time.NewTicker(diskEvery)
	defer t.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-t.C:
		}
		st := d.measure()
		if !d.raft.leads() {
			_, leader := d.raft.running().LeaderWithID()
			d.refuse(d.health.of(string(leader)).Disk.WritesRefused)
			continue
		}
		d.lead(st, d.raft.members())
	}
}

// lead decides for a leader. It refuses commands before it hands over
// leadership, because that may take seconds.
func (d *diskMonitor) lead(own DiskStatus, members []member.Member) {
	text, next := d.decide(own, members)
	d.refuse(text)
	if next == "" {
		clear(d.failed)
		return
	}
	if d.clock.Mono() > d.handOver {
		d.handOver = d.clock.Mono() + handOverEvery
		d.giveUp(next)
	}
}

// refuse sets what full returns.
func (d *diskMonitor) refuse(text string) {
	if text == d.full() {
		return
	}
	if text == "" {
		d.refusal.Store(nil)
		return
	}
	d.refusal.Store(&text)
}

// decide returns why this node, as leader, must refuse commands that add data,
// or "". next is a voter with room that should lead in place of this node, or
// "": the voter to which the fewest hand-overs have failed, and of several such
// voters the one that has applied most.
func (d *diskMonitor) decide(own DiskStatus, members []member.Member) (refusal, next string) {
	var low []string
	voters, roomy, storing := 0, 0, 0
	var best uint64 // what next has applied
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		self := m.ID == d.cfg.NodeID
		h := d.health.of(m.ID)
		st, alive := h.Disk, h.Alive
		if self {
			st, alive = own, true
		}
		if self || alive && !st.DiskFull { // a leader stores entries even if its disk is full
			storing++
		}
		switch {
		case st.DiskLow:
			low = append(low, fmt.Sprintf("%s has %s free and a reserve of %s", m.ID, size(st.DiskFree),
				size(st.DiskReserve)))
		case alive:
			roomy++
			fails, least := d.failed[m.ID], d.failed[next]
			if !self && (next == "" || fails < least || fails == least && h.Applied > best) {
				next, best = m.ID, h.Applied
			}
		}
	}
	majority := voters/2 + 1
	if roomy < majority {
		next = ""
	}
	switch {
	case own.DiskLow:
	case len(low) > 0 && roomy < majority:
		next = ""
	default:
		return "", ""
	}
	works := "Reads and deletions work."
	if storing < majority {
		works = "Reads work. Deletions and releases of locks wait until a majority of the voters can store them."
	}
	return "MISCONF commands that add data are refused because the disk is almost full: " +
		strings.Join(low, ", ") + " (--disk-reserve). " + works + " Free space or enlarge the disk.", next
}

// giveUp transfers leadership to a voter with room.
func (d *diskMonitor) giveUp(next string) {
	ctx, cancel := context.WithTimeout(d.ctx, adminTimeout)
	defer cancel()
	d.log.Info("handing over leadership because the disk of this node is almost full", "to", next)
	var reply adminReply
	if err := d.transfer(ctx, next, &reply); err != nil {
		d.failed[next]++
		d.log.Warn("leadership not handed over", "to", next, "error", err, "retry_in", handOverEvery)
	}
}

// size formats a number of bytes for people.
func size(bytes int64) string { return units.BytesSize(float64(bytes)) }
