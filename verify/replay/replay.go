package replay

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// Result is what Check found.
type Result struct {
	Entries    int // entries replayed
	Executed   int // commands in them that ran
	Matched    int // writes of the history that were found in the log
	Reads      int // reads of the history that the log explains
	Unmodelled int // commands that the model does not know; their keys are left out
	Violations []oracle.Violation
}

// Check replays a committed log and compares it with the history. Keys of the
// history are in database 0.
func Check(log Log, ops []oracle.Op, appends []oracle.Append) Result {
	r := &replay{byWhat: make(map[string][]*execution), past: make(map[string][]change)}
	r.m = model{keys: make(map[string]value), volatile: make(map[string]int64), compacted: len(log.Entries) > 0 && log.Entries[0].Index > 1, changed: r.note}
	r.run(log)
	for _, a := range appends {
		ops = append(ops, oracle.Op{Client: a.Client, Kind: rpush, Key: a.List, Arg: a.ID, Call: a.Call, Return: a.Return, Outcome: a.Outcome, Reply: anyReply})
	}
	if r.compacted() {
		// Writes before the beginning of the log cannot be found in it.
		r.res.Matched = 0
	} else {
		r.match(ops)
	}
	r.reads(ops)
	return r.res
}

// anyReply marks an acknowledgement whose reply was not kept.
var anyReply = oracle.Reply{Text: "\x00any"}

type replay struct {
	res    Result
	m      model
	at     int // place of the command that runs: counts all commands of the log
	execs  []*execution
	byWhat map[string][]*execution
	past   map[string][]change // by key, in the order of the log
}

// execution is a command that the log made run.
type execution struct {
	at    int
	what  string
	reply oracle.Reply
	sure  bool
	taken bool
	op    *oracle.Op
}

// change is what a key holds from a place of the log on.
type change struct {
	at int
	v  value
}

func (r *replay) compacted() bool { return r.m.compacted }

func (r *replay) note(key string, v value) {
	r.past[key] = append(r.past[key], change{r.at, v})
}

func (r *replay) say(o *oracle.Op, format string, args ...any) {
	v := oracle.Violation{Check: "log replay", Text: fmt.Sprintf(format, args...)}
	if o != nil {
		v.Key, v.From, v.To = o.Key, o.Call, o.Return
	}
	r.res.Violations = append(r.res.Violations, v)
}

// run replays the entries.
func (r *replay) run(log Log) {
	err := walk(log, r.compacted(), func(stamp int64) {
		r.res.Entries++
		if stamp >= 0 {
			r.at++
			r.m.tick(stamp)
		}
	}, r.operation)
	if err != nil {
		r.say(nil, "%v", err)
	}
}

// Commands calls f for each command that the log makes run, in order; those of
// transactions with watches, of which it is not known whether they ran, included.
// Entries behind one that cannot be read are left out: Check tells of it.
func Commands(log Log, f func(fsm.RecordCommand)) {
	_ = walk(log, len(log.Entries) > 0 && log.Entries[0].Index > 1, func(int64) {}, func(op fsm.RecordOp) {
		for _, c := range op.Commands {
			f(c)
		}
	})
}

// session is what the log says of one start of a node.
type session struct {
	boot, last uint64
	superseded bool // by a later start in the entry that is walked over
}

// walk goes over the entries: fences, the clock, each session's numbers,
// operations. entry is called with the stamp of an entry that counts, -1 for others.
func walk(log Log, compacted bool, entry func(stamp int64), operation func(fsm.RecordOp)) error {
	sessions := make(map[string]*session) // by node
	features := 0
	if compacted {
		features = fsm.FeatureMend // what it was raised to is not known; logs that are compared are not compacted
	}
	for _, e := range log.Entries {
		if !e.Command {
			continue
		}
		rec, err := fsm.ReadRecord(e.Data)
		if err != nil {
			return fmt.Errorf("entry %d cannot be read: %w", e.Index, err)
		}
		if rec.Header.Term != e.Term || rec.TermStart != nil {
			if rec.Header.Term == e.Term && features < fsm.FeatureMend {
				features = rec.TermStart.Features
			}
			entry(-1)
			continue
		}
		entry(rec.Header.Stamp)
		named := make(map[fsm.SessionID]*session) // nil for one that a later start has replaced
		for _, id := range rec.Sessions {
			s := sessions[id.NodeID]
			switch {
			case s == nil && compacted: // its earlier groups are in the part that is gone
				last, any := before(rec, id)
				if !any {
					continue
				}
				s = &session{boot: id.Boot, last: last}
			case s == nil || s.boot < id.Boot:
				if s != nil {
					s.superseded = true
				}
				s = &session{boot: id.Boot}
			case s.boot > id.Boot:
				continue
			}
			sessions[id.NodeID], named[id] = s, s
		}
		for _, g := range rec.Groups {
			s := named[g.Session]
			if s == nil || s.superseded && features >= fsm.FeatureMend || g.Seq != s.last+1 {
				continue
			}
			s.last++
			for _, op := range g.Ops {
				features = max(features, raised(op))
				operation(op)
			}
		}
	}
	return nil
}

// before returns the number before that of a session's first group in an entry, if
// it has any.
func before(rec fsm.Record, id fsm.SessionID) (last uint64, any bool) {
	for _, g := range rec.Groups {
		if g.Session == id {
			return g.Seq - 1, true
		}
	}
	return 0, false
}

// raised returns the feature version that an operation raises the cluster to, 0 for
// none.
func raised(op fsm.RecordOp) int {
	if len(op.Commands) != 1 || op.Commands[0].Args[0] != fsm.FeaturesCommand || len(op.Commands[0].Args) != 3 {
		return 0
	}
	n, err := strconv.Atoi(op.Commands[0].Args[2])
	if err != nil {
		return 0
	}
	return n
}

func (r *replay) operation(op fsm.RecordOp) {
	if len(op.Watches) > 0 {
		// Whether it ran depends on versions, which this model does not keep.
		for _, c := range op.Commands {
			r.forget(c)
		}
		return
	}
	for _, c := range op.Commands {
		r.at++
		r.res.Executed++
		o, known := parse(c.Args)
		if !known || c.DB != 0 {
			r.forget(c)
			continue
		}
		reply, sure := r.m.run(o, o.Key)
		if op.Effects {
			continue // a script's, not a client's
		}
		x := &execution{at: r.at, what: what(&o), reply: reply, sure: sure}
		r.execs = append(r.execs, x)
		r.byWhat[x.what] = append(r.byWhat[x.what], x)
	}
}

// forget makes the keys of a command unknown that the model does not know.
func (r *replay) forget(c fsm.RecordCommand) {
	r.res.Unmodelled++
	for _, arg := range c.Args[1:] {
		if c.DB == 0 {
			r.m.put(arg, value{unknown: true})
		}
	}
}

// what names a command with all that it says: equal commands cannot be told
// apart, and need not be.
func what(o *oracle.Op) string {
	return fmt.Sprintf("%s %q %q %q %v %v %v %v %d", o.Kind, o.Key, o.Arg, o.Cmp, o.NX, o.XX, o.Get, o.KeepTTL, o.TTL.Milliseconds())
}

// match finds each write of the history in the log.
func (r *replay) match(ops []oracle.Op) {
	type tally struct {
		acked, unknown, refused int
		op                      *oracle.Op
	}
	tallies := make(map[string]*tally)
	var order []string
	for i := range ops {
		o := &ops[i]
		if o.Kind.Reads() {
			continue
		}
		w := what(o)
		t := tallies[w]
		if t == nil {
			t = &tally{op: o}
			tallies[w] = t
			order = append(order, w)
		}
		switch o.Outcome {
		case oracle.Done:
			t.acked++
			if !o.Reply.Error {
				r.take(o, w)
			}
		case oracle.Unknown:
			t.unknown++
		case oracle.Refused:
			t.refused++
		}
	}
	for _, w := range order {
		t, n := tallies[w], len(r.byWhat[w])
		switch {
		case n < t.acked:
			r.say(t.op, "%v was acknowledged %d times and is %d times in the log", t.op, t.acked, n)
		case n > t.acked+t.unknown:
			r.say(t.op, "%v ran %d times: %d acknowledged, %d unknown, %d refused", t.op, n, t.acked, t.unknown, t.refused)
		}
	}
	r.order()
}

// take finds the execution whose reply the client was given. One that may have
// given any reply is left for a client that no other explains.
func (r *replay) take(o *oracle.Op, w string) {
	all := r.byWhat[w]
	for _, sure := range []bool{true, false} {
		for _, x := range all {
			if x.taken || x.sure != sure || sure && o.Reply != anyReply && x.reply != o.Reply {
				continue
			}
			x.taken = true
			r.res.Matched++
			if len(all) == 1 {
				x.op = o // only where there is no doubt which one it was
			}
			return
		}
	}
	var got []string
	for _, x := range all {
		got = append(got, x.reply.String())
	}
	if len(all) > 0 {
		r.say(o, "%v: the log gives %s", o, strings.Join(got, ", "))
	}
}

// order checks that the log agrees with real time: what stands later must not have
// been answered before what stands earlier was asked.
func (r *replay) order() {
	var latest *oracle.Op
	for _, x := range r.execs {
		if x.op == nil {
			continue
		}
		if latest != nil && x.op.Return < latest.Call {
			r.say(x.op, "%v was answered at %v, but stands in the log behind %v, which was sent at %v", x.op, x.op.Return, latest, latest.Call)
		}
		if latest == nil || x.op.Call > latest.Call {
			latest = x.op
		}
	}
}

// reads checks that each value read was there between two places of the log: the
// last that was certainly executed before the read was sent, and the first that
// was certainly not yet when it was answered.
func (r *replay) reads(ops []oracle.Op) {
	type moment struct {
		time time.Duration
		at   int
	}
	var before, after []moment // executions by their answer, by their call
	for _, x := range r.execs {
		if x.op != nil {
			before = append(before, moment{x.op.Return, x.at})
			after = append(after, moment{x.op.Call, x.at})
		}
	}
	sort.Slice(before, func(i, j int) bool { return before[i].time < before[j].time })
	sort.Slice(after, func(i, j int) bool { return after[i].time < after[j].time })
	for i := 1; i < len(before); i++ {
		before[i].at = max(before[i].at, before[i-1].at)
	}
	for i := len(after) - 2; i >= 0; i-- {
		after[i].at = min(after[i].at, after[i+1].at)
	}
	for i := range ops {
		o := &ops[i]
		if o.Kind != oracle.Get || o.Outcome != oracle.Done || o.Reply.Error {
			continue
		}
		low, high := 0, r.at
		if n := sort.Search(len(before), func(i int) bool { return before[i].time >= o.Call }); n > 0 {
			low = before[n-1].at
		}
		if n := sort.Search(len(after), func(i int) bool { return after[i].time > o.Return }); n < len(after) {
			high = after[n].at - 1
		}
		if r.held(o, low, high) {
			r.res.Reads++
		} else {
			r.say(o, "%v: the key held nothing of the kind from place %d to %d of the log", o, low, high)
		}
	}
}

// held reports whether the key held what was read, somewhere from low to high.
func (r *replay) held(o *oracle.Op, low, high int) bool {
	past := r.past[o.Key]
	i := sort.Search(len(past), func(i int) bool { return past[i].at > low }) - 1
	if i < 0 {
		if r.compacted() || o.Reply.Null {
			return true
		}
		i = 0
	}
	for ; i < len(past) && past[i].at <= high; i++ {
		v := past[i].v
		if v.unknown || v.present == !o.Reply.Null && v.text == o.Reply.Text {
			return true
		}
	}
	return false
}
