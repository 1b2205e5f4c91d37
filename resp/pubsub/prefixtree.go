package pubsub

import (
	"cmp"
	"slices"
	"strings"
)

// prefixTree is a map from strings to values. Given any string, it finds the
// values of all keys that are prefixes of that string. The time of each
// operation is proportional to the length of its string and does not depend on
// the number of strings.
type prefixTree[V any] struct {
	root prefixNode[V]
	n    int
}

// prefixNode represents the concatenation of the labels on the path from the
// root. Every node but the root has a value or at least two children.
type prefixNode[V any] struct {
	label    string
	value    *V
	children []*prefixNode[V] // sorted by the first bytes of their labels, which differ
}

// find returns the index of the child whose label begins with b, or the index
// at which to insert it.
func (n *prefixNode[V]) find(b byte) (int, bool) {
	return slices.BinarySearchFunc(n.children, b, func(c *prefixNode[V], b byte) int {
		return cmp.Compare(c.label[0], b)
	})
}

// len returns the number of strings with a value.
func (t *prefixTree[V]) len() int { return t.n }

// at returns the value of a string. It creates the value if there is none.
func (t *prefixTree[V]) at(key string) *V {
	n := &t.root
	for key != "" {
		i, ok := n.find(key[0])
		if !ok {
			n.children = slices.Insert(n.children, i, &prefixNode[V]{label: key})
		}
		c := n.children[i]
		same := commonPrefix(c.label, key)
		if same < len(c.label) {
			// Split the node. The upper label is cloned: a substring would keep
			// the whole original string in memory after that string is deleted.
			upper := &prefixNode[V]{label: strings.Clone(c.label[:same]), children: []*prefixNode[V]{c}}
			c.label = c.label[same:]
			n.children[i], c = upper, upper
		}
		n, key = c, key[same:]
	}
	if n.value == nil {
		n.value = new(V)
		t.n++
	}
	return n.value
}

// get returns the value of a string, or nil if there is none.
func (t *prefixTree[V]) get(key string) (value *V) {
	t.walk(key, func(left string, v *V) {
		if left == "" {
			value = v
		}
	})
	return value
}

// delete removes the value of a string.
func (t *prefixTree[V]) delete(key string) {
	var above *prefixNode[V]
	n, at := &t.root, 0
	for key != "" {
		i, ok := n.find(key[0])
		if !ok || !strings.HasPrefix(key, n.children[i].label) {
			return
		}
		above, at, n = n, i, n.children[i]
		key = key[len(n.label):]
	}
	if n.value == nil {
		return
	}
	n.value = nil
	t.n--
	if above == nil {
		return
	}
	if len(n.children) == 0 {
		above.children = slices.Delete(above.children, at, at+1)
		if above != &t.root {
			above.merge()
		}
		return
	}
	n.merge()
}

// merge joins a node without a value with its only child.
func (n *prefixNode[V]) merge() {
	if n.value != nil || len(n.children) != 1 {
		return
	}
	c := n.children[0]
	n.label, n.value, n.children = n.label+c.label, c.value, c.children
}

// walk calls f with the value of each prefix of a string, the shortest first,
// and with the rest of the string after that prefix.
func (t *prefixTree[V]) walk(key string, f func(left string, value *V)) {
	n := &t.root
	for {
		if n.value != nil {
			f(key, n.value)
		}
		if key == "" {
			return
		}
		i, ok := n.find(key[0])
		if !ok || !strings.HasPrefix(key, n.children[i].label) {
			return
		}
		n = n.children[i]
		key = key[len(n.label):]
	}
}

// commonPrefix returns the length of the common prefix of two strings, in
// bytes.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
