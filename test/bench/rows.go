package main

import "context"

// row is one kind of load, measured on all systems.
type row struct {
	name     string
	clients  int
	pipeline int
	command  []string
	cycle    *cycle // used in place of command
	writes   bool   // nearly every command must create a key
	follower bool   // also measured through a follower
	tmpfs    bool   // also measured with all data in memory

	keys  string                                       // range of the random numbers in keys; default keyspace
	fill  func(ctx context.Context, addr string) error // writes keys before the row begins, nil for none
	first int                                          // commands of the first run, 0 for the default of calibrate

	// These are the floors. leaderFloor and followerFloor are shares of the
	// rate of Redis. ownFloor is the follower's share of the rate of our
	// own leader. 0 means no floor.
	leaderFloor, followerFloor, ownFloor float64
}

// keyspace is the size of the range of the random numbers in keys. It is so
// large that nearly every SETNX creates a key. A SETNX that fails costs Redis
// no fsync, but it costs a replicated log an entry.
const keyspace = "1000000000"

// runMark is a placeholder in keys. Each run replaces it with the number of the
// run. Without it, a run would sometimes draw the same keys as an earlier one,
// because redis-benchmark seeds its random numbers with the time and its
// process id.
const runMark = "<run>"

var (
	setnx = []string{"SETNX", "lock:" + runMark + ":__rand_int__", "holder-0123456789"}
	get   = []string{"GET", "lock:" + runMark + ":__rand_int__"}
)

// allRows lists the rows with a floor, and one row without a floor: the lock
// cycle with a script that Holdfast must interpret. It is there for comparison
// with the cycle whose script Holdfast recognizes.
var allRows = []row{
	{name: "SETNX c1", tmpfs: true, clients: 1, pipeline: 1, command: setnx, writes: true, leaderFloor: 0.25},
	{name: "SETNX c50", tmpfs: true, clients: 50, pipeline: 1, command: setnx, writes: true, follower: true,
		leaderFloor: 0.33, ownFloor: 0.7},
	{name: "SETNX c256", tmpfs: true, clients: 256, pipeline: 1, command: setnx, writes: true, follower: true,
		leaderFloor: 0.45, ownFloor: 0.7},
	{name: "SETNX c50 P16", tmpfs: true, clients: 50, pipeline: 16, command: setnx, writes: true, leaderFloor: 0.35},
	{name: "GET c50", clients: 50, pipeline: 1, command: get, follower: true, leaderFloor: 0.45, followerFloor: 0.35},
	{name: "lock cycle c50", clients: 50, pipeline: 1, cycle: redsyncRelease, follower: true, leaderFloor: 0.5},
	{name: "own lock script c50", clients: 50, pipeline: 1, cycle: ownRelease},
}
