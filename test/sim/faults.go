package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// injection runs one fault.
type injection struct {
	w *world
	f Fault
	r *rand.Rand
}

// inject runs a fault from its beginning to its end. It reports whether the
// fault took effect, that is, whether it changed anything.
func (w *world) inject(f Fault) (effective bool) {
	inj := &injection{w: w, f: f, r: rand.New(rand.NewPCG(f.Seed, 1))}
	switch f.Kind {
	case "isolation":
		return inj.partition(inj.isolated(inj.pick()))
	case "split":
		return inj.partition(inj.split())
	case "one-way loss out":
		return inj.partition(inj.from(inj.pick()))
	case "one-way loss in":
		return inj.partition(inj.to(inj.pick()))
	case "follower cut from leader":
		leader := w.leader()
		other := inj.choose(without(w.ids(), leader))
		if leader == "" || other == "" {
			return false
		}
		return inj.partition([]direction{{leader, other}, {other, leader}})
	case "shatter":
		return inj.partition(inj.all(func(string, string) bool { return true }))
	case "ring":
		return inj.partition(inj.ring())
	case "bridge":
		return inj.partition(inj.bridge())
	case "reset of connections":
		before := w.net.effects().broken
		if id := inj.pick(); id != "" {
			w.net.reset(id, "")
		}
		return w.net.effects().broken > before
	case "slow links":
		return inj.slowLinks()
	case "slow answers":
		return inj.slowAnswers()
	case "replay of old requests":
		return w.net.replay(inj.r.IntN)
	case "kill":
		return inj.crash(true, inj.pick())
	case upgrade:
		return inj.upgrade()
	case quickRestart:
		return inj.quickRestart()
	case "power failure":
		return inj.crash(false, inj.pick())
	case "power failure of a majority":
		ids := inj.shuffled()
		return inj.crash(false, ids[:len(ids)/2+1]...)
	case "power failure of all":
		return inj.crash(false, w.ids()...)
	case "stall":
		return inj.stall()
	case "slow disk":
		return inj.slowDisk()
	case "clock jump":
		return inj.clockJump()
	case "clock drift":
		return inj.clockDrift()
	case "transfer storm":
		return inj.transfers()
	case "transfer":
		return inj.transfer()
	case "removal":
		return inj.removal()
	case "addition":
		return inj.addition()
	case "island":
		return inj.island()
	case "snapshot":
		return inj.snapshot()
	}
	if effective, known := inj.operate(); known {
		return effective
	}
	panic("sim: no such fault: " + f.Kind)
}

// pick returns the node that the fault affects, or "all". It resolves a role
// such as "leader", and returns "" if no node has that role.
func (inj *injection) pick() string {
	leader := inj.w.leader()
	switch inj.f.Who {
	case "leader":
		return leader
	case "follower":
		return inj.choose(without(inj.w.ids(), leader))
	}
	return inj.f.Who
}

func (inj *injection) choose(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[inj.r.IntN(len(ids))]
}

func (inj *injection) shuffled() []string {
	ids := inj.w.ids()
	inj.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(x string) bool { return x == id })
}

// wait waits for the duration of the fault.
func (inj *injection) wait() { <-time.After(inj.f.For) }

// all returns the directions between two nodes for which rule reports true.
func (inj *injection) all(rule func(from, to string) bool) []direction {
	var ds []direction
	ids := inj.w.ids()
	for _, from := range ids {
		for _, to := range ids {
			if from != to && rule(from, to) {
				ds = append(ds, direction{from, to})
			}
		}
	}
	return ds
}

func (inj *injection) isolated(id string) []direction {
	return inj.all(func(from, to string) bool { return from == id || to == id })
}

func (inj *injection) from(id string) []direction {
	return inj.all(func(from, _ string) bool { return from == id })
}

func (inj *injection) to(id string) []direction {
	return inj.all(func(_, to string) bool { return to == id })
}

// split returns the directions to cut so that the cluster has two parts.
func (inj *injection) split() []direction {
	ids := inj.shuffled()
	part := ids[:1+inj.r.IntN(len(ids)-1)]
	return inj.all(func(from, to string) bool { return slices.Contains(part, from) != slices.Contains(part, to) })
}

// ring returns the directions to cut so that each node reaches only its two
// neighbors in a ring. With five nodes, every node reaches a majority, and no
// two nodes reach the same majority.
func (inj *injection) ring() []direction {
	ids := inj.shuffled()
	return inj.all(func(from, to string) bool {
		d := slices.Index(ids, from) - slices.Index(ids, to)
		return d*d != 1 && d*d != (len(ids)-1)*(len(ids)-1)
	})
}

// bridge returns the directions to cut so that the cluster has two halves. Only
// one node, the bridge, reaches both of them.
func (inj *injection) bridge() []direction {
	ids := inj.shuffled()
	half := len(ids) / 2
	side := func(id string) int {
		switch i := slices.Index(ids, id); {
		case i < half:
			return -1
		case i > half:
			return 1
		}
		return 0
	}
	return inj.all(func(from, to string) bool { return side(from)*side(to) < 0 })
}

func (inj *injection) partition(ds []direction) bool {
	if len(ds) == 0 {
		return false
	}
	before := inj.w.net.effects()
	heal := inj.w.net.cut(ds)
	inj.wait()
	heal()
	after := inj.w.net.effects()
	return after.held+after.unreached > before.held+before.unreached
}

func (inj *injection) slowLinks() bool {
	who := inj.pick()
	ds := inj.all(func(from, to string) bool { return who == "all" || from == who || to == who })
	before := inj.w.net.effects().late
	for _, d := range ds {
		by := time.Duration(inj.r.Int64N(inj.f.Much + 1)) // each path of a real network has its own delay
		inj.w.net.slow(d, by)
	}
	inj.wait()
	for _, d := range ds {
		inj.w.net.slow(d, 0)
	}
	return inj.w.net.effects().late > before
}

// slowAnswers delays everything that other nodes send to a node, usually for
// longer than the election of another leader takes. Acknowledgements then
// arrive when they no longer prove that the node leads.
func (inj *injection) slowAnswers() bool {
	id := inj.pick()
	ds := inj.to(id)
	before := inj.w.net.effects().late
	for _, d := range ds {
		inj.w.net.slow(d, time.Duration(inj.f.Much))
	}
	inj.wait()
	for _, d := range ds {
		inj.w.net.slow(d, 0)
	}
	return inj.w.net.effects().late > before
}

func (inj *injection) crash(resets bool, ids ...string) bool {
	effective := false
	for _, id := range ids {
		if id != "" && inj.w.crash(id, resets) {
			effective = true
		}
	}
	inj.wait()
	for _, id := range ids {
		if id != "" {
			inj.w.revive(id)
		}
	}
	return effective
}

// upgrade stops a node and starts it again with the newest program.
func (inj *injection) upgrade() bool {
	nd := inj.w.node(inj.f.Who)
	effective := inj.w.crash(nd.id, true)
	inj.wait()
	nd.mu.Lock()
	nd.features = 0
	nd.mu.Unlock()
	inj.w.revive(nd.id)
	return effective
}

// quickRestart kills a follower while a slow disk delays an entry on the
// leader, and starts the follower again before that entry is complete. Groups
// of both starts can then be in the next entry.
func (inj *injection) quickRestart() bool {
	leader := inj.w.leader()
	id := inj.pick()
	if leader == "" || id == "" || id == leader {
		return false
	}
	d := inj.w.node(leader).disk
	late := d.effects().late
	d.slowDown(time.Duration(inj.f.Much))
	<-time.After(50*ms + time.Duration(inj.r.Int64N(inj.f.Much/2)))
	effective := inj.w.crash(id, true)
	inj.wait()
	inj.w.revive(id)
	<-time.After(time.Duration(inj.f.Much))
	d.slowDown(0)
	return effective && d.effects().late > late
}

// stall keeps a node from sending, receiving and writing, while its timers run.
// It simulates a machine under far too much load.
func (inj *injection) stall() bool {
	id := inj.pick()
	if id == "" {
		return false
	}
	d := inj.w.node(id).disk
	resume := d.stall()
	if resume == nil {
		return false
	}
	late := d.effects().late
	effective := inj.partition(inj.isolated(id))
	resume()
	return effective || d.effects().late > late
}

func (inj *injection) slowDisk() bool {
	who := inj.pick()
	ids := []string{who}
	switch who {
	case "":
		return false
	case "all":
		ids = inj.w.ids()
	}
	late := int64(0)
	for _, id := range ids {
		late -= inj.w.node(id).disk.effects().late
		inj.w.node(id).disk.slowDown(time.Duration(inj.f.Much))
	}
	inj.wait()
	for _, id := range ids {
		inj.w.node(id).disk.slowDown(0)
		late += inj.w.node(id).disk.effects().late
	}
	return late > 0
}

// clockJump moves the wall clock, and moves it back at the end of the fault.
func (inj *injection) clockJump() bool {
	id := inj.pick()
	if id == "" {
		return false
	}
	c := inj.w.node(id).clock
	before := c.Wall()
	c.jump(time.Duration(inj.f.Much))
	moved := c.Wall().Sub(before)
	inj.wait()
	c.jump(-time.Duration(inj.f.Much))
	return moved == time.Duration(inj.f.Much)
}

// slowestLeased is the lowest rate of a clock, in millionths, in a history with
// leader leases. A lease is safe only if the leader's clock is slower than each
// voter's clock by less than 1 %. The rate is above 99 %, because other faults
// may make a voter's clock 0.9 ‰ too fast.
const slowestLeased = 992_000

// clockDrift makes a clock run at another rate. In a history without leader
// leases, the clock may be slow by any factor, because a slow clock only makes
// keys live longer. A fast clock stays within the drift that the product
// tolerates.
func (inj *injection) clockDrift() bool {
	id := inj.pick()
	if id == "" {
		return false
	}
	c := inj.w.node(id).clock
	real, shown := time.Now(), c.Mono()
	rate := inj.f.Much
	if inj.w.opts.LeaderLease > 0 {
		rate = max(rate, slowestLeased)
	}
	c.drift(float64(rate) / 1e6)
	inj.wait()
	off := time.Since(real) - (c.Mono() - shown)
	c.drift(1)
	return off != 0
}

// askEvery is the interval between the fault injector's requests to the
// cluster.
const askEvery = 200 * time.Millisecond

func (inj *injection) transfers() bool {
	begun, effective := time.Now(), false
	for time.Since(begun) < inj.f.For {
		if p := inj.w.node(inj.choose(inj.w.ids())).running(); p != nil {
			if transferLeadership(p.n, "") == nil {
				effective = true
			}
		}
		<-time.After(askEvery)
	}
	return effective
}

// transfer transfers the leadership to a given node.
func (inj *injection) transfer() bool {
	for range removeTries {
		leader := inj.w.leader()
		if leader == inj.f.Who {
			return true
		}
		if leader != "" {
			if p := inj.w.node(leader).running(); p != nil {
				_ = transferLeadership(p.n, inj.f.Who) // the next iteration checks which node leads
			}
		}
		<-time.After(askEvery / 2)
	}
	return false
}

// removal removes a member, discards its disk, and lets the node join again.
func (inj *injection) removal() bool {
	id := inj.pick()
	return id != "" && inj.w.renew(id, inj.f.For)
}

func (inj *injection) addition() bool {
	ids := inj.w.ids()
	if len(ids) > 5 {
		return false
	}
	const newcomer = "o1" // the newcomer's ID sorts after the IDs of the other nodes
	if slices.Contains(ids, newcomer) {
		return false // one added node is enough
	}
	inj.w.join(newcomer)
	return true
}

// island cuts the leader off and then makes it remove all other nodes. In a
// cluster of two voters, the leader may remove the other one on its own. In a
// larger cluster it may not: such a removal could lead to two different
// committed logs, which the audit would report.
func (inj *injection) island() bool {
	leader := inj.w.leader()
	if leader == "" {
		return false
	}
	p := inj.w.node(leader).running()
	if p == nil {
		return false
	}
	heal := inj.w.net.cut(inj.isolated(leader))
	var removals sync.WaitGroup
	for _, id := range without(inj.w.ids(), leader) {
		removals.Go(func() {
			// The removal is forced. Otherwise the leader would ask
			// the other nodes first, and refuse the removal. The
			// result is ignored: the audit finds a removal that
			// should not have happened.
			defer inj.w.changing()()
			_, _ = p.n.Remove(context.Background(), id, true)
		})
	}
	inj.wait()
	heal()
	// A removal that succeeds after the cut is a removal from a healthy
	// cluster. Wait for it, because repair must start only afterwards.
	removals.Wait()
	return true
}

func (inj *injection) snapshot() bool {
	id := inj.pick()
	if id == "" {
		return false
	}
	d := inj.w.node(id).disk
	before := d.effects().snaps
	if p := inj.w.node(id).running(); p != nil {
		_ = p.n.Snapshot() // the disk's counter shows whether the snapshot was taken
	}
	return d.effects().snaps > before
}
