package keyspace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
)

// TestLock compares a Lock with a list, through changes, copies and encodings.
func TestLock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	owner := &container.Owner{}
	o := NewLock([]byte("k"), 0)
	o.Token = 1 << 20
	var model, kept []Holder
	var copied *Object
	token := Pos(0)
	for step := range 3000 {
		n := o.EditLock()
		l := n.Coll.Lock
		switch i := rng.IntN(3); {
		case i == 0 && len(model) < 60 || len(model) == 0:
			token += Pos(1 + rng.IntN(3))
			h := Holder{fmt.Sprint("o", token%97), token, int64(1 + rng.IntN(20)), int64(rng.IntN(9))}
			if _, found := l.Of(h.Owner); !found {
				l.Add(owner, h)
				model = append(model, h)
			}
		case i == 1:
			at := rng.IntN(len(model))
			model[at].Deadline, model[at].ExpireAt = int64(1+rng.IntN(20)), int64(rng.IntN(9))
			l.Renew(owner, model[at])
		default:
			at := rng.IntN(len(model))
			l.Remove(owner, model[at])
			model = slices.Delete(model, at, at+1)
		}
		o = n
		if copied != nil {
			sameHolders(t, copied, kept)
		}
		if rng.IntN(10) == 0 { // the machine does the same when it is cloned
			copied, kept, owner = o, slices.Clone(model), &container.Owner{}
		}
		sameHolders(t, o, model)
		if step%20 == 0 && len(model) > 0 {
			o.UpdateEnd()
			r, err := reread(encoded(o))
			if err != nil {
				t.Fatal(err)
			}
			sameHolders(t, r, model)
		}
		if t.Failed() {
			t.Fatalf("step %d", step)
		}
	}
}

func sameHolders(t *testing.T, o *Object, model []Holder) {
	t.Helper()
	l := o.Coll.Lock
	var got []Holder
	l.Ascend(func(h *Holder) bool {
		got = append(got, *h)
		return true
	})
	if !slices.Equal(got, model) || l.Len() != len(model) {
		t.Errorf("holders %v, want %v", got, model)
		return
	}
	due := int64(0)
	for _, h := range model {
		if due == 0 || h.Deadline < due {
			due = h.Deadline
		}
		of, found := l.Of(h.Owner)
		with, found2 := l.WithToken(h.Token)
		if !found || !found2 || of != h || with != h {
			t.Errorf("holder %v: Of returns %v, and WithToken returns %v", h, of, with)
		}
	}
	if o.Due() != due || len(model) > 0 && l.First().Deadline != due {
		t.Errorf("Due is %d, want %d", o.Due(), due)
	}
	for now := int64(0); now < 22; now += 3 {
		live := 0
		for _, h := range model {
			if h.Deadline > now {
				live++
			}
		}
		if l.LiveAt(now) != live {
			t.Errorf("%d holders are live at %d, want %d", l.LiveAt(now), now, live)
		}
	}
}

// encoded returns the encoding of an object and its elements.
func encoded(o *Object) []byte {
	b := AppendObject(nil, 0, o)
	o.AppendElements(&b, func() bool { return true })
	return b
}

// reread reads the result of encoded and checks the lock.
func reread(b []byte) (*Object, error) {
	d := &codec.Decoder{Rest: b}
	o := &Object{}
	_, n, _, err := ReadObject(d, o, false)
	if err != nil {
		return nil, err
	}
	due := o.Due()
	for ; n > 0; n-- {
		if err := ReadElement(d, o, &container.Owner{}); err != nil {
			return nil, err
		}
	}
	return o, o.CheckLock(due, o.Deadline)
}

// TestLock_Format checks that reread refuses locks that break a rule.
func TestLock_Format(t *testing.T) {
	make := func(limit int, end int64, holders ...Holder) *Object {
		o := NewLock([]byte("k"), limit)
		o.Token = 9
		for _, h := range holders {
			o.Coll.Lock.Add(&container.Owner{}, h)
		}
		o.Deadline = end
		return o
	}
	a, b := Holder{"a", 3, 10, 1}, Holder{"b", 5, 7, 1}
	if _, err := reread(encoded(make(2, 10, a, b))); err != nil {
		t.Fatal(err)
	}
	twice := make(0, 10, a)
	twice.Coll.Lock.Add(&container.Owner{}, Holder{"a", 5, 8, 0})
	late := make(0, 10, a, b)
	late.Coll.Lock.Due = 9
	early := make(0, 10, a, b)
	early.Coll.Lock.Due = 5
	for name, o := range map[string]*Object{
		"no holder":           make(0, 10),
		"above the limit":     make(1, 10, a, b),
		"limit too large":     make(MaxHolders+1, 10, a, b),
		"deadline too early":  make(0, 9, a, b),
		"deadline too late":   make(0, 11, a, b),
		"tokens out of order": make(0, 10, Holder{"c", 6, 10, 1}, Holder{"d", 4, 9, 1}),
		"token too high":      make(0, 10, Holder{"c", 10, 10, 1}),
		"owner twice":         twice,
		"due too late":        late,
		"due too early":       early,
		"no deadline":         make(0, 0, Holder{"c", 1, 0, 0}),
	} {
		if r, err := reread(encoded(o)); err == nil {
			t.Errorf("%s: read as %+v, want an error", name, r.Coll.Lock)
		}
	}
}
