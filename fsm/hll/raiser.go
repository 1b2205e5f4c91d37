package hll

// A Raiser raises many registers of a value. In a sparse value, Raise of a Value
// searches from the first run each time. A Raiser remembers a run near each
// block of registers. The bytes of the value become the same as with Raise.
type Raiser struct {
	h *Value
	// marks has, for each block of registers, the cursor from which the search
	// for a register of this block begins. Its run is the first one, or all its
	// registers are before the block.
	marks [Registers / blockRegisters]cursor
}

// blockRegisters is the number of registers of a block.
const blockRegisters = 256

// NewRaiser returns a Raiser for h. Until it is no longer used, h must not be
// changed in another way.
func NewRaiser(h *Value) *Raiser {
	r := &Raiser{h: h}
	for i := range r.marks {
		r.marks[i] = cursor{at: header}
	}
	return r
}

// Raise is like Raise of a Value.
func (r *Raiser) Raise(i int, value byte) (changed, whole bool) {
	h := r.h
	if !h.Sparse() || len(h.b) > sparseMost {
		return h.Raise(i, value)
	}
	from := r.before(i / blockRegisters)
	size := len(h.b)
	changed, whole = h.setSparse(&from, i, value)
	if changed && h.Sparse() {
		r.moved(from, len(h.b)-size)
	}
	return changed, whole
}

// before returns the cursor for a block, after it has moved the mark of the block as
// far as possible.
func (r *Raiser) before(block int) cursor {
	m := r.marks[block]
	for b := block - 1; m.at == header && b >= 0; b-- {
		m = r.marks[b]
	}
	first := block * blockRegisters
	for {
		run := runAt(r.h.b[m.at:])
		next := cursor{m.at + run.size, m.first + run.n}
		if run.size == 0 || next.first >= first {
			break
		}
		after := runAt(r.h.b[next.at:])
		if after.size == 0 || next.first+after.n > first {
			break
		}
		m = next
	}
	r.marks[block] = m
	return m
}

// touched is more than the number of bytes, from the cursor that setSparse returns
// on, in which setSparse may change runs: it splits one run and joins at most five
// runs after that, each of at most two bytes.
const touched = 24

// moved updates the marks after runs behind the cursor from have changed, and the
// runs after these have moved by delta bytes.
func (r *Raiser) moved(from cursor, delta int) {
	for i := range r.marks {
		switch m := &r.marks[i]; {
		case m.at <= from.at:
		case m.at <= from.at+touched:
			*m = from
		default:
			m.at += delta
		}
	}
}
