// Package diskspace decides which commands and entries a node refuses when its
// disk is almost full.
package diskspace

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

// Status is the state of the file system that contains a node's data
// directory. All fields except WritesRefused are zero if the state is not known.
type Status struct {
	// DiskFree is the number of bytes that the node may still write, and
	// DiskTotal is the size of the file system in bytes. DiskReserve is
	// Config.Reserve, or its default for this file system.
	DiskFree    int64 `json:"disk_free_bytes,omitempty"`
	DiskTotal   int64 `json:"disk_total_bytes,omitempty"`
	DiskReserve int64 `json:"disk_reserve_bytes,omitempty"`
	// DiskLow is set when the free space falls below DiskReserve. It is cleared
	// when the free space has reached Enough.
	DiskLow bool `json:"disk_low,omitempty"`
	// DiskFull is set while so little is free that the node, as a follower,
	// accepts no entries.
	DiskFull bool `json:"disk_full,omitempty"`
	// WritesRefused is, on the leader, the error for commands that add data. It
	// is "" while the cluster accepts them.
	WritesRefused string `json:"writes_refused,omitempty"`
}

// Enough returns the free space, in bytes, at which a low disk counts as having
// room again. It is more than the reserve, so that the restrictions do not come
// and go while the free space is near the reserve.
func (s Status) Enough() int64 { return s.DiskReserve + s.DiskReserve/16 }

// The reserve keeps room for three things. Deletions, releases and renewals of
// locks still need room in the log. A snapshot needs room before the log can
// become shorter. And a new log segment needs room for its full size at once.
const (
	maxDefaultReserve = 1 << 30
	// logSegment is the default size of a log segment, in bytes. A default
	// reserve is at least twice the size of a segment.
	logSegment = 64 << 20
	// reserveMargin is the room for everything else that a node writes while a
	// new segment is allocated, in bytes.
	reserveMargin = 8 << 20
	// measureEvery is the interval of the measurements. A leader that writes 400
	// MB/s writes 100 MB meanwhile.
	measureEvery = 250 * time.Millisecond
	// measureRest is the interval while this node's disk has more free space
	// than Enough plus ample (16 GiB). An ordinary disk cannot write 16 GiB in
	// a second.
	measureRest = time.Second
	ample       = 16 << 30
	// handOverEvery is the minimum time between two attempts of a leader to
	// give its leadership to a node with more room.
	handOverEvery = 10 * time.Second
)

// Config contains the settings and functions that a Monitor needs from its
// node.
type Config struct {
	NodeID  string
	DataDir string
	// Space returns the free bytes and the size of the file system of dir: see
	// Of.
	Space func(dir string) (free, total int64, err error)
	// Reserve is the reserve in bytes. If it is negative, the Monitor chooses
	// the reserve by the size of the file system.
	Reserve int64
	Segment int64                // size of a log segment in bytes; 0 is the default of the log
	Mono    func() time.Duration // monotonic time
	Logger  hclog.Logger

	// Leads reports whether this node leads. LeaderRefuses returns the
	// WritesRefused that the leader last reported. Members returns the members
	// of the cluster. Peer returns the last report of a member.
	Leads         func() bool
	LeaderRefuses func() string
	Members       func() []member.Member
	Peer          func(id string) Peer
	// Transfer transfers leadership to the node next. It returns when the
	// transfer has succeeded or failed.
	Transfer func(ctx context.Context, next string) error
}

// Peer is the last report of another member.
type Peer struct {
	Disk    Status
	Alive   bool   // the member answered the latest request
	Applied uint64 // log index up to which the member has applied the log
}

// Monitor measures the free space of the data directory's file system, and
// decides which commands and entries the node refuses when little of it is
// left:
//
//   - Below the reserve, a leader gives its leadership to a voter with room, if
//     a majority of the voters has room. Otherwise, and until the hand-over has
//     succeeded, it refuses commands that add data (fsm.Command.Grows) before
//     they get into the log. All other commands work.
//   - A leader also refuses commands that add data if a voter is below its
//     reserve, and the voters that answer and have room are not a majority. If
//     a majority of the voters can store no entries, no command that changes
//     data can be committed, not even a deletion. A few voters that are short
//     of room do not stop the cluster.
//   - A follower with less room than the next log segment needs accepts no more
//     entries and no snapshots from a leader (see Scarce). Its log stays
//     intact, and the node continues to vote and to serve reads. It catches up
//     when there is room.
//
// These restrictions end by themselves when there is room again. The methods of
// a Monitor are safe for concurrent use.
type Monitor struct {
	cfg     Config
	segment int64 // size of a log segment, in bytes

	mu      sync.Mutex
	status  Status // guarded by mu
	failing bool   // the last measurement failed; guarded by mu

	// handOver is the monotonic time before which leadership is not handed
	// over. failed counts the failed hand-overs to each voter. Only the
	// goroutine that runs Keep uses these fields.
	handOver time.Duration
	failed   map[string]int

	refusal atomic.Pointer[string] // error for commands that add data; nil while they are accepted
	little  atomic.Pointer[string] // why this node, as a follower, accepts no entries; nil while it accepts them
}

// New returns a Monitor that has measured the disk once. The Monitor calls the
// functions of cfg that ask about the cluster only in Keep and Status.
func New(cfg Config) *Monitor {
	d := &Monitor{cfg: cfg, segment: cfg.Segment, failed: make(map[string]int)}
	if d.segment == 0 {
		d.segment = logSegment
	}
	d.measure()
	return d
}

// Of returns the bytes that a process without special rights may still
// write to the file system of dir, and the size of that file system.
func Of(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// reserve returns the reserve for a file system with the size total.
func (d *Monitor) reserve(total int64) int64 {
	if r := d.cfg.Reserve; r >= 0 {
		return r
	}
	return max(min(total/20, maxDefaultReserve), 2*d.segment)
}

// floor returns the free bytes below which a follower accepts no entries.
func (d *Monitor) floor(reserve int64) int64 { return min(d.segment+reserveMargin, reserve) }

// measure updates the status of this node's disk.
func (d *Monitor) measure() Status {
	free, total, err := d.cfg.Space(d.cfg.DataDir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if !d.failing {
			d.cfg.Logger.Warn("cannot determine the free space of the disk", "dir", d.cfg.DataDir, "error", err)
		}
		d.failing, d.status = true, Status{}
		d.little.Store(nil)
		return d.status
	}
	reserve, was, wasFull := d.reserve(total), d.status.DiskLow, d.status.DiskFull
	d.failing = false
	d.status = Status{DiskFree: free, DiskTotal: total, DiskReserve: reserve, DiskLow: free < reserve}
	if was && free < d.status.Enough() {
		d.status.DiskLow = true
	}
	switch {
	case d.status.DiskLow && !was:
		d.cfg.Logger.Warn("the disk is almost full: this node refuses commands that add data while it leads",
			"dir", d.cfg.DataDir, "free", size(free), "total", size(total), "reserve", size(reserve),
			"remedy", "free space or enlarge the disk")
	case was && !d.status.DiskLow:
		d.cfg.Logger.Info("the disk has room again", "dir", d.cfg.DataDir, "free", size(free), "reserve", size(reserve))
	}
	floor := d.floor(reserve)
	d.status.DiskFull = free < floor || wasFull && free < min(floor+floor/2, d.status.Enough())
	if d.status.DiskFull {
		text := fmt.Sprintf("the disk has only %s free, and the next file of the log may need %s", size(free),
			size(floor))
		d.little.Store(&text)
	} else {
		d.little.Store(nil)
	}
	return d.status
}

// Status returns the state of this node's disk as last measured.
func (d *Monitor) Status() Status {
	d.mu.Lock()
	st := d.status
	d.mu.Unlock()
	if d.cfg.Leads() {
		st.WritesRefused = d.Full()
	}
	return st
}

// Full returns the error for commands that add data, or "". On a node that does
// not lead, it is the error that the leader last reported.
func (d *Monitor) Full() string {
	if p := d.refusal.Load(); p != nil {
		return *p
	}
	return ""
}

// Scarce returns an error while this node has too little room for the entries
// that a leader sends. A follower calls it for every append, and for every write
// of a snapshot from a leader.
func (d *Monitor) Scarce() error {
	if p := d.little.Load(); p != nil {
		return fmt.Errorf("no room for entries: %s: free space or enlarge the disk", *p)
	}
	return nil
}

// RoomFor returns an error if a file of the given size would take the space that
// the log needs for its next segment. It measures the disk.
func (d *Monitor) RoomFor(bytes int64) error {
	st := d.measure()
	if need := bytes + d.floor(st.DiskReserve); st.DiskTotal > 0 && st.DiskFree < need {
		return fmt.Errorf("the disk has %s free, and a snapshot and the next file of the log need %s: "+
			"free space or enlarge the disk", size(st.DiskFree), size(need))
	}
	return nil
}

// Keep measures the disk at intervals and acts on the result, until ctx ends.
func (d *Monitor) Keep(ctx context.Context) {
	t := time.NewTimer(measureEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		st := d.measure()
		if st.DiskFree > st.Enough()+ample {
			t.Reset(measureRest)
		} else {
			t.Reset(measureEvery)
		}
		if !d.cfg.Leads() {
			d.refuse(d.cfg.LeaderRefuses())
			continue
		}
		d.lead(ctx, st, d.cfg.Members())
	}
}

// lead acts on a measurement if this node leads. It refuses commands before it
// hands over leadership, because a hand-over may take seconds.
func (d *Monitor) lead(ctx context.Context, own Status, members []member.Member) {
	text, next := d.decide(own, members)
	d.refuse(text)
	if next == "" {
		clear(d.failed)
		return
	}
	if d.cfg.Mono() > d.handOver {
		d.handOver = d.cfg.Mono() + handOverEvery
		d.giveUp(ctx, next)
	}
}

// refuse sets the result of Full.
func (d *Monitor) refuse(text string) {
	if text == d.Full() {
		return
	}
	if text == "" {
		d.refusal.Store(nil)
		return
	}
	d.refusal.Store(&text)
}

// decide returns the error with which this node, as leader, must refuse
// commands that add data, or "" if it must not refuse them. next is a voter
// with room that should lead in place of this node, or "" if there is none.
// decide chooses the voter to which the fewest hand-overs have failed. Among
// several such voters, it chooses the voter that has applied the most entries.
func (d *Monitor) decide(own Status, members []member.Member) (refusal, next string) {
	var low []string
	voters, roomy, storing := 0, 0, 0
	var best uint64 // applied index of next
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		self := m.ID == d.cfg.NodeID
		h := d.cfg.Peer(m.ID)
		st, alive := h.Disk, h.Alive
		if self {
			st, alive = own, true
		}
		if self || alive && !st.DiskFull { // a leader stores entries even if its disk is full
			storing++
		}
		switch {
		case st.DiskLow:
			text := fmt.Sprintf("%s has %s free and a reserve of %s", m.ID, size(st.DiskFree), size(st.DiskReserve))
			if st.DiskFree >= st.DiskReserve {
				text += fmt.Sprintf(", and needs %s before it counts as having room", size(st.Enough()))
			}
			low = append(low, text)
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
func (d *Monitor) giveUp(ctx context.Context, next string) {
	d.cfg.Logger.Info("handing over leadership because the disk of this node is almost full", "to", next)
	if err := d.cfg.Transfer(ctx, next); err != nil {
		d.failed[next]++
		d.cfg.Logger.Warn("leadership not handed over", "to", next, "error", err, "retry_in", handOverEvery)
	}
}

// size formats a number of bytes for people.
func size(bytes int64) string { return units.BytesSize(float64(bytes)) }
