package main

// row is one kind of load, on all systems.
type row struct {
	name     string
	clients  int
	pipeline int
	command  []string
	cycle    *cycle // in place of command
	writes   bool   // every command must make a key
	follower bool   // measured through a follower too

	// Floors: the leader and the follower as a share of Redis, and the follower as
	// a share of our own leader. 0 for none.
	leaderFloor, followerFloor, ownFloor float64
}

// Keys are drawn from a thousand million, so that nearly every SETNX makes one: a
// SETNX that fails costs Redis no fsync, but a replicated log an entry.
const keyspace = "1000000000"

// runMark in a key becomes the number of the run: redis-benchmark seeds its
// numbers with the time and its process id, and now and then one run draws the
// keys of another.
const runMark = "<run>"

var (
	setnx = []string{"SETNX", "lock:" + runMark + ":__rand_int__", "holder-0123456789"}
	get   = []string{"GET", "lock:" + runMark + ":__rand_int__"}
)

// allRows are those with a floor, which are those of the project's milestones, and
// the lock cycle by a script that has to be interpreted, to be read beside the other.
var allRows = []row{
	{name: "SETNX c1", clients: 1, pipeline: 1, command: setnx, writes: true, leaderFloor: 0.25},
	{name: "SETNX c50", clients: 50, pipeline: 1, command: setnx, writes: true, follower: true, leaderFloor: 0.33, ownFloor: 0.7},
	{name: "SETNX c256", clients: 256, pipeline: 1, command: setnx, writes: true, follower: true, leaderFloor: 0.45, ownFloor: 0.7},
	{name: "SETNX c50 P16", clients: 50, pipeline: 16, command: setnx, writes: true, leaderFloor: 0.40},
	{name: "GET c50", clients: 50, pipeline: 1, command: get, follower: true, leaderFloor: 0.6, followerFloor: 0.3},
	{name: "lock cycle c50", clients: 50, pipeline: 1, cycle: redsyncRelease, follower: true, leaderFloor: 0.6},
	{name: "own lock script c50", clients: 50, pipeline: 1, cycle: ownRelease},
}
