package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// blow is a running fault.
type blow struct {
	w *world
	f Fault
	r *rand.Rand
}

// inject runs a fault from its beginning to its end. It reports whether the
// fault took effect, that is, whether it changed anything.
func (w *world) inject(f Fault) (bit bool) {
	b := &blow{w: w, f: f, r: rand.New(rand.NewPCG(f.Seed, 1))}
	switch f.Kind {
	case "isolation":
		return b.partition(b.isolated(b.pick()))
	case "split":
		return b.partition(b.split())
	case "one-way loss out":
		return b.partition(b.from(b.pick()))
	case "one-way loss in":
		return b.partition(b.to(b.pick()))
	case "follower cut from leader":
		leader := w.leader()
		other := b.choose(without(w.ids(), leader))
		if leader == "" || other == "" {
			return false
		}
		return b.partition([]direction{{leader, other}, {other, leader}})
	case "shatter":
		return b.partition(b.all(func(string, string) bool { return true }))
	case "ring":
		return b.partition(b.ring())
	case "bridge":
		return b.partition(b.bridge())
	case "reset of connections":
		before := w.net.effects().broken
		if id := b.pick(); id != "" {
			w.net.reset(id, "")
		}
		return w.net.effects().broken > before
	case "slow links":
		return b.slowLinks()
	case "slow answers":
		return b.slowAnswers()
	case "replay of old requests":
		return w.net.replay(b.r.IntN)
	case "kill":
		return b.crash(true, b.pick())
	case upgrade:
		return b.upgrade()
	case quickRestart:
		return b.quickRestart()
	case "power failure":
		return b.crash(false, b.pick())
	case "power failure of a majority":
		ids := b.shuffled()
		return b.crash(false, ids[:len(ids)/2+1]...)
	case "power failure of all":
		return b.crash(false, w.ids()...)
	case "stall":
		return b.stall()
	case "slow disk":
		return b.slowDisk()
	case "clock jump":
		return b.clockJump()
	case "clock drift":
		return b.clockDrift()
	case "transfer storm":
		return b.transfers()
	case "transfer":
		return b.transfer()
	case "removal":
		return b.removal()
	case "addition":
		return b.addition()
	case "island":
		return b.island()
	case "snapshot":
		return b.snapshot()
	}
	if bit, known := b.operate(); known {
		return bit
	}
	panic("sim: no such fault: " + f.Kind)
}

// pick returns the node that the fault is for. It resolves a role such as
// "leader", and returns "" if no node has that role.
func (b *blow) pick() string {
	leader := b.w.leader()
	switch b.f.Who {
	case "leader":
		return leader
	case "follower":
		return b.choose(without(b.w.ids(), leader))
	}
	return b.f.Who
}

func (b *blow) choose(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[b.r.IntN(len(ids))]
}

func (b *blow) shuffled() []string {
	ids := b.w.ids()
	b.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(x string) bool { return x == id })
}

// wait waits for the duration of the fault.
func (b *blow) wait() { <-time.After(b.f.For) }

// all returns the directions between two nodes for which rule reports true.
func (b *blow) all(rule func(from, to string) bool) []direction {
	var ds []direction
	ids := b.w.ids()
	for _, from := range ids {
		for _, to := range ids {
			if from != to && rule(from, to) {
				ds = append(ds, direction{from, to})
			}
		}
	}
	return ds
}

func (b *blow) isolated(id string) []direction {
	return b.all(func(from, to string) bool { return from == id || to == id })
}

func (b *blow) from(id string) []direction {
	return b.all(func(from, _ string) bool { return from == id })
}

func (b *blow) to(id string) []direction {
	return b.all(func(_, to string) bool { return to == id })
}

// split cuts the cluster into two parts.
func (b *blow) split() []direction {
	ids := b.shuffled()
	part := ids[:1+b.r.IntN(len(ids)-1)]
	return b.all(func(from, to string) bool { return slices.Contains(part, from) != slices.Contains(part, to) })
}

// ring connects each node with only its two neighbors in a ring. With five
// nodes, every node reaches a majority, and no two nodes reach the same one.
func (b *blow) ring() []direction {
	ids := b.shuffled()
	return b.all(func(from, to string) bool {
		d := slices.Index(ids, from) - slices.Index(ids, to)
		return d*d != 1 && d*d != (len(ids)-1)*(len(ids)-1)
	})
}

// bridge makes two halves that only one node, the bridge, can both reach.
func (b *blow) bridge() []direction {
	ids := b.shuffled()
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
	return b.all(func(from, to string) bool { return side(from)*side(to) < 0 })
}

func (b *blow) partition(ds []direction) bool {
	if len(ds) == 0 {
		return false
	}
	before := b.w.net.effects()
	heal := b.w.net.cut(ds)
	b.wait()
	heal()
	after := b.w.net.effects()
	return after.held+after.unreached > before.held+before.unreached
}

func (b *blow) slowLinks() bool {
	who := b.pick()
	ds := b.all(func(from, to string) bool { return who == "all" || from == who || to == who })
	before := b.w.net.effects().late
	for _, d := range ds {
		by := time.Duration(b.r.Int64N(b.f.Much + 1)) // as different as the paths of a real network
		b.w.net.slow(d, by)
	}
	b.wait()
	for _, d := range ds {
		b.w.net.slow(d, 0)
	}
	return b.w.net.effects().late > before
}

// slowAnswers delays everything that is sent to a node, for longer than the
// election of another leader takes. Acknowledgements then arrive when they are
// no longer true.
func (b *blow) slowAnswers() bool {
	id := b.pick()
	ds := b.to(id)
	before := b.w.net.effects().late
	for _, d := range ds {
		b.w.net.slow(d, time.Duration(b.f.Much))
	}
	b.wait()
	for _, d := range ds {
		b.w.net.slow(d, 0)
	}
	return b.w.net.effects().late > before
}

func (b *blow) crash(loud bool, ids ...string) bool {
	bit := false
	for _, id := range ids {
		if id != "" && b.w.crash(id, loud) {
			bit = true
		}
	}
	b.wait()
	for _, id := range ids {
		if id != "" {
			b.w.revive(id)
		}
	}
	return bit
}

// upgrade stops a node and starts it again with the newest program.
func (b *blow) upgrade() bool {
	nd := b.w.node(b.f.Who)
	bit := b.w.crash(nd.id, true)
	b.wait()
	nd.mu.Lock()
	nd.features = 0
	nd.mu.Unlock()
	b.w.revive(nd.id)
	return bit
}

// quickRestart kills a follower while a slow disk delays an entry on the
// leader, and starts the follower again before that entry is complete. Groups
// of both starts can then be in the next entry.
func (b *blow) quickRestart() bool {
	leader := b.w.leader()
	id := b.pick()
	if leader == "" || id == "" || id == leader {
		return false
	}
	d := b.w.node(leader).disk
	late := d.effects().late
	d.slowDown(time.Duration(b.f.Much))
	<-time.After(50*ms + time.Duration(b.r.Int64N(b.f.Much/2)))
	bit := b.w.crash(id, true)
	b.wait()
	b.w.revive(id)
	<-time.After(time.Duration(b.f.Much))
	d.slowDown(0)
	return bit && d.effects().late > late
}

// stall keeps a node from sending, receiving and writing, while its timers go
// on. It simulates a machine under far too much load.
func (b *blow) stall() bool {
	id := b.pick()
	if id == "" {
		return false
	}
	d := b.w.node(id).disk
	resume := d.stall()
	if resume == nil {
		return false
	}
	late := d.effects().late
	bit := b.partition(b.isolated(id))
	resume()
	return bit || d.effects().late > late
}

func (b *blow) slowDisk() bool {
	who := b.pick()
	ids := []string{who}
	switch who {
	case "":
		return false
	case "all":
		ids = b.w.ids()
	}
	late := int64(0)
	for _, id := range ids {
		late -= b.w.node(id).disk.effects().late
		b.w.node(id).disk.slowDown(time.Duration(b.f.Much))
	}
	b.wait()
	for _, id := range ids {
		b.w.node(id).disk.slowDown(0)
		late += b.w.node(id).disk.effects().late
	}
	return late > 0
}

// clockJump moves the wall clock, and moves it back at the end of the fault.
func (b *blow) clockJump() bool {
	id := b.pick()
	if id == "" {
		return false
	}
	c := b.w.node(id).clock
	before := c.Wall()
	c.jump(time.Duration(b.f.Much))
	moved := c.Wall().Sub(before)
	b.wait()
	c.jump(-time.Duration(b.f.Much))
	return moved == time.Duration(b.f.Much)
}

// clockDrift makes a clock run at another rate. The clock may be slower without
// a limit, because that only makes keys live longer. It is faster only within
// the drift that the product tolerates.
func (b *blow) clockDrift() bool {
	id := b.pick()
	if id == "" {
		return false
	}
	c := b.w.node(id).clock
	real, shown := time.Now(), c.Mono()
	c.drift(float64(b.f.Much) / 1e6)
	b.wait()
	off := time.Since(real) - (c.Mono() - shown)
	c.drift(1)
	return off != 0
}

// askEvery is the interval between the fault injector's requests to the
// cluster.
const askEvery = 200 * time.Millisecond

func (b *blow) transfers() bool {
	begun, bit := time.Now(), false
	for time.Since(begun) < b.f.For {
		if p := b.w.node(b.choose(b.w.ids())).running(); p != nil {
			if transferLeadership(p.n, "") == nil {
				bit = true
			}
		}
		<-time.After(askEvery)
	}
	return bit
}

// transfer transfers the leadership to a given node.
func (b *blow) transfer() bool {
	for range removeTries {
		leader := b.w.leader()
		if leader == b.f.Who {
			return true
		}
		if leader != "" {
			if p := b.w.node(leader).running(); p != nil {
				_ = transferLeadership(p.n, b.f.Who) // the next iteration sees which node leads
			}
		}
		<-time.After(askEvery / 2)
	}
	return false
}

// removal removes a member, discards its disk, and lets the node join again.
func (b *blow) removal() bool {
	id := b.pick()
	return id != "" && b.w.renew(id, b.f.For)
}

func (b *blow) addition() bool {
	ids := b.w.ids()
	if len(ids) > 5 {
		return false
	}
	const newcomer = "o1" // sorts after the IDs of the other nodes
	if slices.Contains(ids, newcomer) {
		return false // one added node is enough
	}
	b.w.join(newcomer)
	return true
}

// island cuts the leader off and then makes it remove all other nodes. With two
// voters the leader may remove the other one on its own; with more voters it
// may not. If such a removal took effect, one log would get two histories, and
// the audit would see them.
func (b *blow) island() bool {
	leader := b.w.leader()
	if leader == "" {
		return false
	}
	p := b.w.node(leader).running()
	if p == nil {
		return false
	}
	heal := b.w.net.cut(b.isolated(leader))
	var removals sync.WaitGroup
	for _, id := range without(b.w.ids(), leader) {
		removals.Go(func() {
			// The removal is forced, because the leader would ask
			// the other nodes first. Its result is ignored: the
			// audit finds a removal that should not have happened.
			_, _ = p.n.Remove(context.Background(), id, true)
		})
	}
	b.wait()
	heal()
	// A removal that succeeds after the cut is a removal from a healthy
	// cluster. Wait for it, because repair must not start before.
	removals.Wait()
	return true
}

func (b *blow) snapshot() bool {
	id := b.pick()
	if id == "" {
		return false
	}
	d := b.w.node(id).disk
	before := d.effects().snaps
	if p := b.w.node(id).running(); p != nil {
		_ = p.n.Snapshot() // the disk's counter shows whether the snapshot was taken
	}
	return d.effects().snaps > before
}
