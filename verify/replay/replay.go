package replay

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// Result is the result of Check.
type Result struct {
	Entries    int // entries replayed
	Executed   int // commands in these entries that were executed
	Matched    int // writes of the history that were found in the log
	Reads      int // reads of the history that the log explains
	Unmodeled  int // commands that the model does not know; their keys are not checked
	Violations []checker.Violation
}

// Check replays a committed log and compares it with the history. The keys of
// the history are in database 0.
func Check(log Log, ops []checker.Op, appends []checker.Append) Result {
	r := &replay{byWhat: make(map[string][]*execution), past: make(map[string][]change)}
	r.m = model{keys: make(map[string]value), volatile: make(map[string]int64),
		compacted: len(log.Entries) > 0 && log.Entries[0].Index > 1, changed: r.note}
	r.run(log)
	for _, a := range appends {
		ops = append(ops, checker.Op{Client: a.Client, Kind: rpush, Key: a.List, Arg: a.ID, Call: a.Call,
			Return: a.Return, Outcome: a.Outcome, Reply: anyReply})
	}
	if r.compacted() {
		// The log does not contain the writes from before its beginning.
		r.res.Matched = 0
	} else {
		r.match(ops)
	}
	r.reads(ops)
	return r.res
}

// anyReply stands for an acknowledgement whose reply was not recorded.
var anyReply = checker.Reply{Text: "\x00any"}

type replay struct {
	res    Result
	m      model
	at     int // position of the current command, among all commands of the log
	execs  []*execution
	byWhat map[string][]*execution
	past   map[string][]change // by key, in the order of the log
}

// execution is the execution of one command of the log.
type execution struct {
	at    int
	what  string
	reply checker.Reply
	sure  bool
	taken bool
	op    *checker.Op
}

// change is a new value of a key, and the position in the log from which the
// key holds it.
type change struct {
	at int
	v  value
}

func (r *replay) compacted() bool { return r.m.compacted }

func (r *replay) note(key string, v value) {
	r.past[key] = append(r.past[key], change{r.at, v})
}

func (r *replay) say(o *checker.Op, format string, args ...any) {
	v := checker.Violation{Check: "log replay", Text: fmt.Sprintf(format, args...)}
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
			r.m.advance(stamp)
		}
	}, r.operation)
	if err != nil {
		r.say(nil, "%v", err)
	}
}

// Commands calls f for each command of the log that the nodes execute, in order.
// It includes the commands of transactions with watches, although the log does
// not show whether they were executed. If an entry cannot be read, Commands
// leaves out this entry and all later ones, and Check reports it.
func Commands(log Log, f func(fsm.RecordCommand)) {
	_ = walk(log, len(log.Entries) > 0 && log.Entries[0].Index > 1, func(int64) {}, func(op fsm.RecordOp) {
		for _, c := range op.Commands {
			f(c)
		}
	})
}

// Published returns the messages of each channel in the order of the log.
func Published(log Log) map[string][]string {
	messages := make(map[string][]string)
	Commands(log, func(c fsm.RecordCommand) {
		if c.Args[0] == fsm.PublishCommand && len(c.Args) > 2 {
			messages[c.Args[1]] = append(messages[c.Args[1]], c.Args[2])
		}
	})
	return messages
}

// session is the state of one session while walk reads the log. Each start of a
// node begins a new one.
type session struct {
	boot, last uint64
	superseded bool // true if a later start in the entry that is being read has replaced this session
}

// walk reads the entries in order. Like the state machine, it skips entries that
// the term fence excludes, groups that were executed before, and groups of an
// earlier start of a node. It calls the function operation for each operation
// that is executed. It calls the function entry with the lease clock of each
// entry that counts, and with -1 for each TermStart and each entry that the term
// fence excludes.
func walk(log Log, compacted bool, entry func(stamp int64), operation func(fsm.RecordOp)) error {
	sessions := make(map[string]*session) // by node
	features := 0
	if compacted {
		features = fsm.FeatureMend // a compacted log does not show the version; Check does not look for writes in it
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
		named := make(map[fsm.SessionID]*session) // nil for a session that a later start has replaced
		for _, id := range rec.Sessions {
			s := sessions[id.NodeID]
			switch {
			case s == nil && compacted: // earlier groups of the session are in the compacted part
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

// before returns the number of the group that precedes a session's first group
// in an entry. The result any is false if the entry has no group of the
// session.
func before(rec fsm.Record, id fsm.SessionID) (last uint64, any bool) {
	for _, g := range rec.Groups {
		if g.Session == id {
			return g.Seq - 1, true
		}
	}
	return 0, false
}

// raised returns the feature version that an operation raises the cluster to, 0
// for none.
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
		// Versions of keys decide whether the transaction was executed. This
		// model does not keep them.
		for _, c := range op.Commands {
			r.forget(c)
		}
		return
	}
	for _, c := range op.Commands {
		r.at++
		r.res.Executed++
		if c.Args[0] == fsm.RestoreCommand {
			r.restore(c.Args)
			continue
		}
		o, known := parse(c.Args)
		if !known || c.DB != 0 {
			r.forget(c)
			continue
		}
		reply, sure := r.m.run(o, o.Key)
		if op.Effects {
			continue // the effect of a script, and not a command of a client
		}
		x := &execution{at: r.at, what: identity(&o), reply: reply, sure: sure}
		r.execs = append(r.execs, x)
		r.byWhat[x.what] = append(r.byWhat[x.what], x)
	}
}

// restore replays a restore. The backup contains the clients' data unchanged
// (see attack.backupFaults), but keys with a time to live have new deadlines.
func (r *replay) restore(args []string) {
	if args[1] != "apply" {
		return
	}
	for key := range r.m.volatile {
		r.m.put(key, value{unknown: true})
	}
}

// forget marks the keys of a command as unknown, because the model cannot run
// the command. It does not know which arguments are keys, so it marks all of
// them.
func (r *replay) forget(c fsm.RecordCommand) {
	r.res.Unmodeled++
	for _, arg := range c.Args[1:] {
		if c.DB == 0 {
			r.m.put(arg, value{unknown: true})
		}
	}
}

// identity returns a text that identifies a command by all its arguments. Two
// commands with equal arguments have the same identity, because no check needs
// to distinguish them.
func identity(o *checker.Op) string {
	return fmt.Sprintf("%s %q %q %q %v %v %v %v %d", o.Kind, o.Key, o.Arg, o.Cmp, o.NX, o.XX, o.Get, o.KeepTTL,
		o.TTL.Milliseconds())
}

// match finds each write of the history in the log.
func (r *replay) match(ops []checker.Op) {
	type tally struct {
		acked, unknown, refused int
		op                      *checker.Op
	}
	tallies := make(map[string]*tally)
	var order []string
	for i := range ops {
		o := &ops[i]
		if o.Kind.Reads() {
			continue
		}
		w := identity(o)
		t := tallies[w]
		if t == nil {
			t = &tally{op: o}
			tallies[w] = t
			order = append(order, w)
		}
		switch o.Outcome {
		case checker.Done:
			t.acked++
			if !o.Reply.Error {
				r.take(o, w)
			}
		case checker.Unknown:
			t.unknown++
		case checker.Refused:
			t.refused++
		}
	}
	for _, w := range order {
		t, n := tallies[w], len(r.byWhat[w])
		switch {
		case n < t.acked:
			r.say(t.op, "%v was acknowledged %d times and is %d times in the log", t.op, t.acked, n)
		case n > t.acked+t.unknown:
			r.say(t.op, "%v ran %d times: %d acknowledged, %d unknown, %d refused", t.op, n, t.acked,
				t.unknown, t.refused)
		}
	}
	r.order()
}

// take finds the execution whose reply the client received. An execution with
// an uncertain reply is used only if no other execution matches.
func (r *replay) take(o *checker.Op, w string) {
	all := r.byWhat[w]
	for _, sure := range []bool{true, false} {
		for _, x := range all {
			if x.taken || x.sure != sure || sure && o.Reply != anyReply && x.reply != o.Reply {
				continue
			}
			x.taken = true
			r.res.Matched++
			if len(all) == 1 {
				x.op = o // known only if no other execution is equal
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

// order checks that the log agrees with real time. A command that is later in
// the log must not have been answered before an earlier one was sent.
func (r *replay) order() {
	var latest *checker.Op
	for _, x := range r.execs {
		if x.op == nil {
			continue
		}
		if latest != nil && x.op.Return < latest.Call {
			r.say(x.op, "%v was answered at %v, but comes in the log after %v, which was sent at %v", x.op,
				x.op.Return, latest, latest.Call)
		}
		if latest == nil || x.op.Call > latest.Call {
			latest = x.op
		}
	}
}

// reads checks that the key of each read held the returned value at some
// position between two commands of the log. The first one is the last command
// that was certainly executed before the read was sent. The second one is the
// first command that was certainly executed after the read was answered.
func (r *replay) reads(ops []checker.Op) {
	type moment struct {
		time time.Duration
		at   int
	}
	var before, after []moment // executions by return time and by call time
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
		if o.Kind != checker.Get || o.Outcome != checker.Done || o.Reply.Error {
			continue
		}
		low, high := 0, r.at
		if n := sort.Search(len(before), func(i int) bool { return before[i].time >= o.Call }); n > 0 {
			low = before[n-1].at
		}
		if n := sort.Search(len(after), func(i int) bool { return after[i].time > o.Return }); n < len(after) {
			high = after[n].at - 1
		}
		if r.hadValue(o, low, high) {
			r.res.Reads++
		} else {
			r.say(o, "%v: the key did not have this value at any position from %d to %d of the log", o, low, high)
		}
	}
}

// hadValue reports whether at some position from low to high the key had, or
// may have had, the value that the read returned. It may have had any value if
// the log does not show its value.
func (r *replay) hadValue(o *checker.Op, low, high int) bool {
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
