package lua

import "strings"

// Proto is a compiled function. It is immutable: States share it.
type Proto struct {
	source string // as given: "@name", "=name" or the text itself
	chunk  string // how errors call the source
	slots  int    // registers
	params []param
	vararg bool
	arg    *param // the table of extra arguments, when the function wants it
	upvals []upval
	body   block
	entry  *site
	weight int // call depth: more for deeply nested expressions
}

// param is a register that the caller fills.
type param struct {
	slot     int
	captured bool
}

// Compile translates a chunk. source names it: errors say name for "@name" and
// "=name", and quote other texts. The error's text is that of Lua 5.1.
func Compile(src, source string) (p *Proto, err error) {
	chunk := chunkName(source)
	defer func() {
		if r := recover(); r != nil {
			se, ok := r.(*syntaxError)
			if !ok {
				panic(r)
			}
			err = se
		}
	}()
	fs := parse(src, chunk)
	c := &compiler{source: source, chunk: chunk}
	return c.function(fs), nil
}

func (e *syntaxError) Error() string { return e.msg }

// chunkName is how messages call a source.
func chunkName(source string) string {
	const most = 60 // including the terminator that C needs
	if source == "" {
		return `[string ""]`
	}
	switch source[0] {
	case '=':
		return source[1:min(len(source), most)]
	case '@':
		name := source[1:]
		if room := most - len("...") - 5; len(name) > room {
			name = "..." + name[len(name)-room:]
		}
		return name
	}
	line, _, cut := strings.Cut(source, "\n")
	if i := strings.IndexByte(line, '\r'); i >= 0 {
		line, cut = line[:i], true
	}
	if room := most - len(`[string "..."] `) - 2; len(line) > room {
		line, cut = line[:room], true
	}
	if cut {
		line += "..."
	}
	return `[string "` + line + `"]`
}

// bind moves arguments into the registers of a new frame.
func (p *Proto) bind(fr *frame, args []Value) {
	n := len(p.params)
	m := copy(fr.regs[:n], args)
	clear(fr.regs[m:n])
	for i := range p.params {
		if p.params[i].captured {
			fr.regs[i] = fr.newCell(fr.regs[i])
		}
	}
	fr.varargs = nil
	if p.vararg && len(args) > n {
		fr.varargs = args[n:]
	}
	if p.arg != nil {
		extra := fr.varargs
		t := fr.st.NewTable(len(extra), 1)
		copy(t.array, extra)
		t.SetStr("n", Int(len(extra)))
		fr.set(p.arg.slot, p.arg.captured, t.Value())
	}
}

const cellBytes = 32

func (fr *frame) newCell(v Value) Value {
	fr.st.Alloc(cellBytes)
	return Value{ref: &cell{v}}
}

// set initialises a local variable.
func (fr *frame) set(slot int, captured bool, v Value) {
	if captured {
		v = fr.newCell(v)
	}
	fr.regs[slot] = v
}
