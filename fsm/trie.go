package fsm

import "sort"

// trie holds the objects of a database in the order of (hash, key). It is a
// radix tree over the 52 bits of the hash, four at a time, whose ends are sorted
// arrays. Hashes are spread evenly, so a place in an array is guessed and nearly
// hit: a lookup among four million keys touches two or three cache lines that
// are not hot, where a B-tree searches a node per level and touches four times
// as many (4 µs a lookup on the machine where it was measured, which was 40 % of
// all that followers did).
//
// Like the B-tree of the expiry index it can be forked in O(1): fork and
// original share nodes and copy a node when they first change it. Empty nodes
// are not taken out again; FLUSHALL starts anew.
type trie struct {
	owner *trieOwner
	root  *trieNode
	n     int
}

// trieOwner is an identity: nodes that carry another one are shared.
type trieOwner struct{ _ byte }

const (
	trieFan  = 16
	trieLeaf = 64 // slots in an end before it is split
	trieTop  = hashBits - 4
	hashBits = 52
)

// trieNode has sixteen places; each is a node, or an end, or empty.
type trieNode struct {
	owner *trieOwner
	// mine has a bit for each end whose array belongs to owner alone.
	mine uint16
	kids [trieFan]trieKid
}

type trieKid struct {
	node  *trieNode
	slots []slot // sorted; nil if node is not
}

func newTrie() *trie {
	o := &trieOwner{}
	return &trie{owner: o, root: &trieNode{owner: o}}
}

// Len returns the number of slots.
func (t *trie) Len() int { return t.n }

// fork returns a trie with the same content. Both may change; neither sees the
// other's changes. It must have exclusive access to t.
func (t *trie) fork() *trie {
	f := *t
	t.owner, f.owner = &trieOwner{}, &trieOwner{}
	return &f
}

// guess returns the first place in an end whose hash is not below hash. shift
// is the number of bits that the end's slots may differ in.
func guess(slots []slot, hash uint64, shift int) int {
	i := int(hash & (1<<shift - 1) * uint64(len(slots)) >> shift)
	for i > 0 && slots[i-1].hash >= hash {
		i--
	}
	for i < len(slots) && slots[i].hash < hash {
		i++
	}
	return i
}

// find returns the place of s in an end, and whether its key is there.
func find(slots []slot, s slot, shift int) (int, bool) {
	i := guess(slots, s.hash, shift)
	// Equal hashes are as good as always one slot; many of them need a forger.
	i += sort.Search(sameHash(slots[i:], s.hash), func(j int) bool { return slots[i+j].obj.key >= s.obj.key })
	return i, i < len(slots) && slots[i].hash == s.hash && slots[i].obj.key == s.obj.key
}

func sameHash(slots []slot, hash uint64) int {
	n := 0
	for n < len(slots) && slots[n].hash == hash {
		n++
	}
	return n
}

// Get returns the object with a hash and key, nil if there is none.
func (t *trie) Get(hash uint64, key string) *object {
	n := t.root
	for shift := trieTop; ; shift -= 4 {
		k := &n.kids[hash>>shift&(trieFan-1)]
		if k.node != nil {
			n = k.node
			continue
		}
		for i := guess(k.slots, hash, shift); i < len(k.slots) && k.slots[i].hash == hash; i++ {
			if o := k.slots[i].obj; o.key == key {
				return o
			}
		}
		return nil
	}
}

// own returns the node in *p, copied first if it is shared.
func (t *trie) own(p **trieNode) *trieNode {
	n := *p
	if n.owner != t.owner {
		c := *n
		c.owner, c.mine = t.owner, 0
		n = &c
		*p = n
	}
	return n
}

// ownSlots makes the array of an end the node's own, with room for one more.
func (n *trieNode) ownSlots(i uint64) []slot {
	k := &n.kids[i]
	if n.mine&(1<<i) == 0 {
		k.slots = append(make([]slot, 0, len(k.slots)+2), k.slots...)
		n.mine |= 1 << i
	}
	return k.slots
}

// Set puts o in and returns the object that had its key before, nil if none.
func (t *trie) Set(o *object) *object {
	s := slot{o.hash, o}
	n := t.own(&t.root)
	for shift := trieTop; ; shift -= 4 {
		i := o.hash >> shift & (trieFan - 1)
		k := &n.kids[i]
		if k.node == nil && len(k.slots) >= trieLeaf && shift > 0 {
			if at, ok := find(k.slots, s, shift); ok {
				slots := n.ownSlots(i)
				old := slots[at].obj
				slots[at] = s
				return old
			}
			k.node = t.split(k.slots, shift-4)
			k.slots = nil
		}
		if k.node != nil {
			n = t.own(&k.node)
			continue
		}
		at, ok := find(k.slots, s, shift)
		slots := n.ownSlots(i)
		if ok {
			old := slots[at].obj
			slots[at] = s
			return old
		}
		slots = append(slots, slot{})
		copy(slots[at+1:], slots[at:])
		slots[at] = s
		k.slots = slots
		t.n++
		return nil
	}
}

// split distributes the slots of a full end over a new node.
func (t *trie) split(slots []slot, shift int) *trieNode {
	n := &trieNode{owner: t.owner, mine: 1<<trieFan - 1}
	for _, s := range slots { // in order, so the new ends are sorted too
		k := &n.kids[s.hash>>shift&(trieFan-1)]
		k.slots = append(k.slots, s)
	}
	return n
}

// Delete takes o's key out and reports whether it was there.
func (t *trie) Delete(o *object) bool {
	n := t.own(&t.root)
	for shift := trieTop; ; shift -= 4 {
		i := o.hash >> shift & (trieFan - 1)
		k := &n.kids[i]
		if k.node != nil {
			n = t.own(&k.node)
			continue
		}
		at, ok := find(k.slots, slot{o.hash, o}, shift)
		if !ok {
			return false
		}
		slots := n.ownSlots(i)
		copy(slots[at:], slots[at+1:])
		slots[len(slots)-1] = slot{}
		k.slots = slots[:len(slots)-1]
		t.n--
		return true
	}
}

// Scan calls f for all slots in order until it returns false.
func (t *trie) Scan(f func(s slot) bool) { t.Ascend(0, f) }

// Ascend calls f for the slots whose hash is at least from, in order, until it
// returns false.
func (t *trie) Ascend(from uint64, f func(s slot) bool) {
	if from>>hashBits == 0 { // beyond the largest hash there is nothing
		t.root.ascend(from, trieTop, f)
	}
}

// ascend walks a node; from is 0 below nodes that lie wholly after the start.
func (n *trieNode) ascend(from uint64, shift int, f func(s slot) bool) bool {
	first := from >> shift & (trieFan - 1)
	for i := first; i < trieFan; i++ {
		if i > first {
			from = 0
		}
		k := &n.kids[i]
		if k.node != nil {
			if !k.node.ascend(from, shift-4, f) {
				return false
			}
			continue
		}
		for _, s := range k.slots {
			if s.hash >= from && !f(s) {
				return false
			}
		}
	}
	return true
}
