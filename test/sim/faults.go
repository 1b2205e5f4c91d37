package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// blow is a fault that is being run.
type blow struct {
	w *world
	f Fault
	r *rand.Rand
}

// strike runs a fault from its beginning to its end. It reports whether it bit:
// whether something is different that would have been otherwise.
func (w *world) strike(f Fault) (bit bool) {
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

// pick resolves the role that a fault is for, "" if nobody plays it.
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

// wait lets the fault last.
func (b *blow) wait() { <-time.After(b.f.For) }

// all lists the directions between two nodes that a rule picks.
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

// split makes two parts.
func (b *blow) split() []direction {
	ids := b.shuffled()
	part := ids[:1+b.r.IntN(len(ids)-1)]
	return b.all(func(from, to string) bool { return slices.Contains(part, from) != slices.Contains(part, to) })
}

// ring lets each node see its two neighbours only: every node sees a majority,
// and no two the same.
func (b *blow) ring() []direction {
	ids := b.shuffled()
	return b.all(func(from, to string) bool {
		d := slices.Index(ids, from) - slices.Index(ids, to)
		return d*d != 1 && d*d != (len(ids)-1)*(len(ids)-1)
	})
}

// bridge makes two halves that only one node sees both of.
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
		by := time.Duration(b.r.Int64N(b.f.Much + 1)) // as different as the ways of a real network
		b.w.net.slow(d, by)
	}
	b.wait()
	for _, d := range ds {
		b.w.net.slow(d, 0)
	}
	return b.w.net.effects().late > before
}

// slowAnswers delays all that comes to a node, for longer than it takes to elect
// another: acknowledgements arrive when they are no longer true.
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

// upgrade stops a node and starts the newest program in its place.
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

// quickRestart kills a node while an entry is held up on the leader's disk, and
// starts it again before that entry is done, so that groups of both of its starts
// can come into the next one.
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

// stall keeps a node from being heard, from hearing, and from writing, for a
// time that goes on for its timers: a machine under a load that is far too high.
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

// clockJump moves the wall clock, and moves it back.
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

// clockDrift makes a clock run at another rate: slower without a limit, since
// that may only make times to live longer, and faster within what the product
// says it allows for.
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

// askEvery paces requests of the fault injector to the cluster.
const askEvery = 200 * time.Millisecond

func (b *blow) transfers() bool {
	begun, bit := time.Now(), false
	for time.Since(begun) < b.f.For {
		if p := b.w.node(b.choose(b.w.ids())).running(); p != nil {
			if p.n.TransferLeadership("") == nil {
				bit = true
			}
		}
		<-time.After(askEvery)
	}
	return bit
}

// transfer makes one node leader.
func (b *blow) transfer() bool {
	for range removeTries {
		leader := b.w.leader()
		if leader == b.f.Who {
			return true
		}
		if leader != "" {
			if p := b.w.node(leader).running(); p != nil {
				_ = p.n.TransferLeadership(b.f.Who) // who leads is seen above
			}
		}
		<-time.After(askEvery / 2)
	}
	return false
}

// removal removes a member, throws its disk away, and lets it join anew.
func (b *blow) removal() bool {
	id := b.pick()
	return id != "" && b.w.renew(id, b.f.For)
}

func (b *blow) addition() bool {
	ids := b.w.ids()
	if len(ids) > 5 {
		return false
	}
	const newcomer = "o1" // behind the others in their order
	if slices.Contains(ids, newcomer) {
		return false // one is enough
	}
	b.w.join(newcomer)
	return true
}

// island cuts the leader off and then has it remove all others. Of two voters it
// may remove the other one alone, of more it may not: a removal that came about
// all the same would show as two histories of one log.
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
			// By force, because the leader would ask the others first. What became of it is
			// the audit's to see.
			_, _ = p.n.Remove(context.Background(), id, true)
		})
	}
	b.wait()
	heal()
	// One that comes through after the cut is a removal of a healthy node: the
	// cluster is not to be repaired before.
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
		_ = p.n.Snapshot() // that it was taken is seen on the disk
	}
	return d.effects().snaps > before
}
