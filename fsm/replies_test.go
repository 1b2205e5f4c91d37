package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

const replyTooLarge = "-" + fsm.ReplyTooLarge + "\r\n"

// element returns an element of size bytes that begins with its number.
func element(i, size int) string {
	head := fmt.Sprintf("<%03d>", i)
	return head + strings.Repeat("x", size-len(head))
}

// remover is a command that removes, replaces or moves the data that it returns. fill
// is the command that adds an element; the element follows. drain is a read or write
// that returns an element that is left. "%d" stands for the number of an element.
type remover struct{ remove, fill, drain string }

var removers = []remover{
	{"LPOP k", "RPUSH k", "LPOP k"},
	{"RPOP k 1", "RPUSH k", "LPOP k"},
	{"LMPOP 1 k LEFT COUNT 1", "RPUSH k", "LPOP k"},
	{"BLPOP k 0", "RPUSH k", "LPOP k"},
	{"BRPOP k 0", "RPUSH k", "LPOP k"},
	{"BLMPOP 0 1 k RIGHT", "RPUSH k", "LPOP k"},
	{"LMOVE k other LEFT RIGHT", "RPUSH k", "LPOP k"},
	{"RPOPLPUSH k other", "RPUSH k", "LPOP k"},
	{"BLMOVE k other LEFT RIGHT 0", "RPUSH k", "LPOP k"},
	{"BRPOPLPUSH k other 0", "RPUSH k", "LPOP k"},
	{"SPOP k", "SADD k", "SPOP k"},
	{"ZPOPMIN k", "ZADD k %d", "ZPOPMIN k"},
	{"ZPOPMAX k 1", "ZADD k %d", "ZPOPMIN k"},
	{"ZMPOP 1 k MIN", "ZADD k %d", "ZPOPMIN k"},
	{"BZPOPMIN k 0", "ZADD k %d", "ZPOPMIN k"},
	{"BZPOPMAX k 0", "ZADD k %d", "ZPOPMIN k"},
	{"BZMPOP 0 1 k MAX", "ZADD k %d", "ZPOPMIN k"},
	{"GETDEL k%d", "SET k%d", "GET k%d"},
	{"GETSET k%d small", "SET k%d", "GET k%d"},
	{"GETEX k%d EXAT 1", "SET k%d", "GET k%d"},
	{"SET k%d small GET", "SET k%d", "GET k%d"},
	{"XREADGROUP GROUP g c COUNT 1 NOACK STREAMS k >", "XADD k * f", "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS k >"},
	{"XREADGROUP GROUP g c COUNT 1 STREAMS k >", "XADD k * f", "XREADGROUP GROUP g c COUNT 1 STREAMS k >"},
}

// otherRemovers are commands that delete keys, fields or elements and return no data
// that they remove, although their key specs say that they read and delete.
var otherRemovers = []string{"delex", "delifeq", "lock break", "lock release", "rename", "renamenx", "smove"}

// TestRemovers_Complete checks that the list of removers contains every command that
// reads and deletes according to its key specs.
func TestRemovers_Complete(t *testing.T) {
	known := slices.Clone(otherRemovers)
	for _, r := range removers {
		name, _, _ := strings.Cut(r.remove, " ")
		known = append(known, strings.ToLower(name))
	}
	found := 0
	eachRow(func(name string, row *fsm.Command) {
		specs := []fsm.KeySpec{{Access: row.Access}}
		specs = append(specs, row.Specs...)
		removes := slices.ContainsFunc(specs, func(s fsm.KeySpec) bool {
			return strings.HasPrefix(s.Access.Flags, "access delete")
		})
		if !removes {
			return
		}
		if found++; !slices.Contains(known, name) {
			t.Errorf("%s reads and deletes: add it to removers", name)
		}
	})
	if found < 20 {
		t.Errorf("found %d commands that read and delete, want at least 20", found)
	}
}

// eachRow calls f with every row of the table. The name of a subcommand follows that
// of its container.
func eachRow(f func(name string, row *fsm.Command)) {
	for _, cmd := range command.NewTable().Rows() {
		if len(cmd.Sub) == 0 {
			f(cmd.Name, cmd)
		}
		for i := range cmd.Sub {
			f(cmd.Name+" "+cmd.Sub[i].Name, &cmd.Sub[i])
		}
	}
}

// queued returns the words of a command as a part of a transaction.
func (f *feed) queued(words ...string) fsm.Queued {
	f.t.Helper()
	cmd, args := find(f.t, f.m.Table(), words)
	return fsm.Queued{Cmd: cmd, Args: args}
}

// filled returns a feed with count elements for a remover, each of size bytes.
func filled(t *testing.T, r remover, count, size int) *feed {
	f := newFeed(t)
	f.raise(fsm.MaxFeatures)
	f.do("XGROUP CREATE k g 0 MKSTREAM")
	if !strings.HasPrefix(r.fill, "XADD") {
		f.do("DEL k")
	}
	for i := range count {
		words := strings.Fields(strings.ReplaceAll(r.fill, "%d", strconv.Itoa(i)))
		if got := f.call(append(words, element(i, size))...); strings.HasPrefix(got, "-") {
			t.Fatalf("%v: %s", words, got)
		}
	}
	return f
}

// elementsIn returns how often the elements are in replies, by number.
func elementsIn(t testing.TB, replies string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	values, err := respwire.ParseAll([]byte(replies))
	if err != nil {
		t.Fatalf("%d bytes of replies: %v", len(replies), err)
	}
	var walk func(v respwire.Value)
	walk = func(v respwire.Value) {
		if number, _, ok := strings.Cut(strings.TrimPrefix(v.Text, "<"), ">"); ok && v.Text[0] == '<' {
			found[number]++
		}
		for _, e := range v.Elems {
			walk(e)
		}
	}
	for _, v := range values {
		walk(v)
	}
	return found
}

// checkLost checks that each of count elements is in replies, or that the drain
// command of the remover still finds it. It returns the number of elements that are
// in replies.
func (f *feed) checkLost(r remover, count int, replies string) (returned int) {
	f.t.Helper()
	var drained strings.Builder
	for i := range count {
		drained.WriteString(f.do(strings.ReplaceAll(r.drain, "%d", strconv.Itoa(i))))
	}
	found, left := elementsIn(f.t, replies), elementsIn(f.t, drained.String())
	for i := range count {
		number := fmt.Sprintf("%03d", i)
		if n := found[number]; n > 1 || n == 0 && left[number] == 0 {
			f.t.Errorf("element %d was returned %d times, and is not in the state", i, n)
		}
		returned += found[number]
	}
	return returned
}

// TestReplies_Removed checks that no data is lost if the replies of a pipeline or a
// transaction exceed the limit: the client gets each element, or the element is
// still there. The writes after the limit are not executed.
func TestReplies_Removed(t *testing.T) {
	t.Parallel()
	const size, count = 7 << 20, 8 // 7 elements are more than the limit
	for i, r := range removers {
		for _, form := range []string{"pipeline", "transaction"} {
			if form == "transaction" && i%4 != 0 {
				continue // the form makes no difference to the command
			}
			t.Run(form+" "+r.remove, func(t *testing.T) {
				f := filled(t, r, count, size)
				f.group.Reset(2, 1)
				var queued []fsm.Queued
				for i := range count {
					words := strings.Fields(strings.ReplaceAll(r.remove, "%d", strconv.Itoa(i)))
					if form == "pipeline" {
						f.add(words...)
					} else {
						queued = append(queued, f.queued(words...))
					}
				}
				if queued != nil {
					f.group.Transaction(nil, queued)
				}
				f.add("SET", "after", "v")
				f.add("EXISTS", "after")
				got := f.send()
				if end := replyTooLarge + ":0\r\n"; !strings.HasSuffix(got, end) {
					t.Errorf("the replies end with %q, want %q", got[max(len(got)-len(end), 0):], end)
				}
				if returned := f.checkLost(r, count, got); returned != 7 || strings.Count(got, replyTooLarge) != 2 {
					t.Errorf("%d elements were returned and %d commands refused, want 7 and 2",
						returned, strings.Count(got, replyTooLarge))
				}
			})
		}
	}
}

// TestReplies_ManyElements checks that the reply of a single command is not replaced
// or cut if its encoding is a little larger than the limit, although its elements
// are not. One of the commands waits when the elements are added.
func TestReplies_ManyElements(t *testing.T) {
	t.Parallel()
	const count = 16 << 10
	const size = fsm.MaxReplyBytes/count - len("$1\r\n\r\n") // as the commands estimate it
	for _, test := range []struct {
		form string
		remover
	}{
		{"command", remover{"SPOP k 20000", "SADD k", "SPOP k"}},
		{"transaction", remover{"LPOP k 20000", "RPUSH k", "LPOP k"}},
		{"waiter", remover{"BLMPOP 0 1 k LEFT COUNT 20000", "RPUSH k", "LPOP k"}},
	} {
		form, r := test.form, test.remover
		t.Run(form, func(t *testing.T) {
			remove := strings.Fields(r.remove)
			f := filled(t, r, 0, size)
			if form == "waiter" {
				f.origin = 2
				f.call(remove...)
				f.origin = 1
			}
			fill := strings.Fields(r.fill)
			for i := range count {
				fill = append(fill, element(i, size))
			}
			f.group.Reset(2, 1)
			var b fsm.BatchBuilder
			switch f.add(fill...); form {
			case "command":
				f.add(remove...)
			case "transaction":
				f.group.Transaction(nil, []fsm.Queued{f.queued(remove...)})
			}
			f.seq++
			b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, f.seq, f.group.Bytes())
			res := f.apply(b.Encode(fsm.Header{Term: 1, Stamp: f.stamp}))
			got := bytes.Clone(res.Groups[0].Reply)
			if form == "waiter" {
				got = res.Woken[0].Reply()
			}
			if len(got) <= fsm.MaxReplyBytes {
				t.Fatalf("a reply of %d bytes does not exceed the limit: %.100q", len(got), got)
			}
			if returned := f.checkLost(r, count, string(got)); returned != count {
				t.Errorf("%d elements were returned, want %d", returned, count)
			}
			if form == "waiter" { // the state keeps the reply
				whole := snapshotOf(t, f.m)
				if !bytes.Equal(snapshotOf(t, restore(t, whole)), whole) {
					t.Error("the restored machine differs from the original")
				}
			}
		})
	}
}

// TestReplies_Scores checks that the commands that take members of a sorted set count
// the size of the scores. Below FeatureReplies, they do not count it, so the replies
// of members with long scores may have three times the size of the limit.
func TestReplies_Scores(t *testing.T) {
	t.Parallel()
	const count = 6
	const size = fsm.MaxReplyBytes/count - len("$1\r\n\r\n$1\r\n\r\n") - 2
	for _, remove := range []string{"ZPOPMIN k 10", "ZMPOP 1 k MAX COUNT 10"} {
		f := filled(t, remover{fill: "ZADD k 0.%d3333333333333331"}, count, size)
		if got := f.do(remove, "ZCARD k"); got != replyTooLarge+fmt.Sprintf(":%d\r\n", count) {
			t.Errorf("%s: %d bytes, want the error for a large reply and %d members", remove, len(got), count)
		}
	}
}

// TestReplies_EveryWrite checks for all commands that, after the replies of a group
// have exceeded the limit, a write is refused and changes nothing. A read is
// executed. So a new command cannot lose data in this way.
func TestReplies_EveryWrite(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"pipeline", "transaction"} {
		t.Run(form, func(t *testing.T) {
			f := newFeed(t)
			f.raise(fsm.MaxFeatures)
			large := strings.Repeat("x", fsm.MaxStringBytes)
			const values = fsm.MaxReplyBytes / fsm.MaxStringBytes // with the heads of the values, they exceed the limit
			for i := range values {
				f.call("SET", fmt.Sprint("large", i), large)
			}
			f.do("SET 1 1")
			f.group.Reset(2, 1)
			var queued []fsm.Queued
			add := func(words ...string) {
				if form == "pipeline" {
					f.add(words...)
				} else {
					queued = append(queued, f.queued(words...))
				}
			}
			for i := range values {
				add("GETDEL", fmt.Sprint("large", i))
			}
			var writes []string
			eachRow(func(name string, row *fsm.Command) {
				if !row.IsWrite() {
					return
				}
				words := strings.Fields(name)
				for range max(row.Arity, -row.Arity) - len(words) {
					words = append(words, "1")
				}
				writes = append(writes, name)
				add(words...)
			})
			add("GET", "1")
			if queued != nil {
				f.group.Transaction(nil, queued)
			}
			got := f.send()
			at := strings.LastIndex(got, "x")
			if want := "x\r\n" + strings.Repeat(replyTooLarge, len(writes)) + "$1\r\n1\r\n"; got[at:] != want {
				for i, line := range strings.Split(got[at:], "\r\n")[1:] {
					if i < len(writes) && line+"\r\n" != replyTooLarge {
						t.Errorf("%s after the limit: %.100q, want the error for a large reply", writes[i], line)
					}
				}
				t.Errorf("the replies after the limit have %d bytes, want %d", len(got[at:]), len(want))
			}
			if got := f.do("GET 1", "DBSIZE"); got != "$1\r\n1\r\n:1\r\n" || len(writes) < 100 {
				t.Errorf("after %d writes: %q, want the state without the writes", len(writes), got)
			}
		})
	}
}

// TestReplies_ReadsInTransaction checks that the reply of a read that exceeds the
// limit is replaced by an error in the reply of a transaction that writes, and that
// the other replies are returned.
func TestReplies_ReadsInTransaction(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.raise(fsm.MaxFeatures)
	const size = 7 << 20
	value := element(1, size)
	f.call("SET", "k", value)
	f.group.Reset(2, 1)
	var queued []fsm.Queued
	for range 8 {
		queued = append(queued, f.queued("GET", "k"))
	}
	f.group.Transaction(nil, append(queued, f.queued("STRLEN", "k"), f.queued("INCR", "n")))
	f.add("GET", "n")
	want := "*10\r\n" + strings.Repeat(respwire.Bulk(value), 6) + strings.Repeat(replyTooLarge, 2) +
		fmt.Sprintf(":%d\r\n:1\r\n", size) + "$1\r\n1\r\n"
	if got := f.send(); got != want {
		t.Errorf("%d bytes, want %d; the end is %.300q", len(got), len(want), got[max(len(got)-300, 0):])
	}
}

// TestReplies_Speculated checks that the speculative execution of a pipeline with a
// script refuses the same commands as the machines that apply the entry. A
// transaction with a script whose replies are too large for the log is not executed.
func TestReplies_Speculated(t *testing.T) {
	t.Parallel()
	const size, count = 7 << 20, 9
	prepare := func(t *testing.T) (s *stage, pops []string) {
		s = newStage(t)
		s.quick = true // snapshots of this size are slow
		s.index++
		start := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c1", Features: fsm.MaxFeatures})
		if _, err := s.m.Apply(s.index, 1, start); err != nil {
			t.Fatal(err)
		}
		for i := range count {
			s.group("RPUSH|l|" + element(i, size))
			pops = append(pops, "LPOP|l")
		}
		s.commit()
		return s, pops
	}
	const refused = "-" + fsm.ReplyTooLarge + " "
	t.Run("pipeline", func(t *testing.T) {
		s, pops := prepare(t)
		s.group(append(pops, "EVAL|RPUSH l x|0", "LLEN|l")...)
		s.group("EVAL|LLEN l|0") // sees the state that the entry will have
		got := s.commit()
		if want := strings.Repeat(refused, 3) + ":2 / :2 "; strings.Count(got, "<") != 7 || !strings.HasSuffix(got, want) {
			t.Errorf("%d elements were returned, and the end of the replies is %q, want %q",
				strings.Count(got, "<"), got[max(len(got)-len(want), 0):], want)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		s, pops := prepare(t)
		s.transaction(nil, append([]string{"EVAL|SET k v|0"}, pops[:5]...)...)
		s.group("LLEN|l", "EXISTS|k")
		s.want("5 elements", refused+"/ :9 :0 ")
		s.transaction(nil, append([]string{"EVAL|SET k v|0"}, pops[:4]...)...)
		s.group("LLEN|l", "EXISTS|k")
		if got, want := s.commit(), "/ :5 :1 "; strings.Count(got, "<") != 4 || !strings.HasSuffix(got, want) {
			t.Errorf("%d elements were returned, and the end is %q, want 4 and %q", strings.Count(got, "<"),
				got[max(len(got)-20, 0):], want)
		}
	})
	t.Run("pipeline with a transaction", func(t *testing.T) {
		s, pops := prepare(t)
		var g fsm.Group
		g.Reset(2, 1)
		var queued []fsm.Queued
		for _, c := range append([]string{"EVAL|SET k v|0"}, pops...) {
			cmd, args := s.words(c)
			queued = append(queued, fsm.Queued{Cmd: cmd, Args: args})
		}
		cmd, args := s.words("LPOP|l")
		g.Command(cmd, 0, args)
		g.Transaction(nil, queued)
		s.add(&g)
		if got := s.commit(); !fsm.TooLong([]byte(got)) {
			t.Errorf("got %d bytes, want the reply to a group that the node divides", len(got))
		}
		s.group("LLEN|l")
		s.want("after it", ":9 ")
	})
}
