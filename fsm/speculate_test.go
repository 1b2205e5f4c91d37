package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

func TestSpeculate_EffectsAreLogged(t *testing.T) {
	s := newStage(t)
	s.group("EVAL|SET $K $A\nINCR n\nGET $K|1|k|v")
	s.group("GET|n", "EVAL|INCR n|0", "INCR|n")
	s.want("scripts among commands", "$1 v / $1 1 :2 :3 ")
	want := "[[0 _script SET $K $A\nINCR n\nGET $K] [0 set k v] [0 incr n]]"
	if op := s.record.Groups[0].Ops[0]; !op.Effects || op.Reply != "$1\r\nv\r\n" || fmt.Sprint(commandsOf(op)) != want {
		t.Errorf("logged effects %v, %q: %v, want %v", op.Effects, op.Reply, commandsOf(op), want)
	}
	s.group("GET|k", "GET|n")
	s.want("state", "$1 v $1 3 ")
	if s.lines.runs != 2 {
		t.Errorf("scripts were run %d times, want 2: once each, by the leader", s.lines.runs)
	}
}

func commandsOf(op fsm.RecordOp) (list [][]string) {
	for _, c := range op.Commands {
		list = append(list, append([]string{strconv.Itoa(c.DB)}, c.Args...))
	}
	return list
}

func TestSpeculate_AllOrNothing(t *testing.T) {
	s := newStage(t)
	s.group("SET|k|old|PX|5000", "SET|x|1")
	s.commit()
	s.group("EVAL|SET $K new\nDEL x\nSET y 1\nfail|1|k", "GET|k", "EXISTS|x|y", "PTTL|k")
	got := s.commit()
	if !strings.HasPrefix(got, "-ERR failed") || !strings.HasSuffix(got, "$3 old :1 :4000 ") {
		t.Errorf("a failed script left something behind: %q", got)
	}
	s.group("EVAL|SET a 1\nNOSUCH|0", "EXISTS|a", "EVAL|SET a 1\nMULTI|0", "EXISTS|a", "EVAL|GET|0")
	s.want("errors of commands", "-ERR Unknown Redis command called from script :0 -ERR This Redis command is not allowed from script :0 -ERR Wrong number of args calling Redis command from script ")
}

func TestSpeculate_Cache(t *testing.T) {
	s := newStage(t)
	sha := fsm.SHA1([]byte("INCR n"))
	s.group("EVALSHA|"+sha+"|0", "SCRIPT|EXISTS|"+sha)
	s.want("unknown script", "-NOSCRIPT No matching script. Please use EVAL. *1 :0 ")
	s.group("SCRIPT|LOAD|INCR n", "EVALSHA|"+sha+"|0")
	s.want("loaded", "$40 "+sha+" :1 ")
	s.group("EVAL|INCR m|0")
	s.commit()
	s.group("EVALSHA|" + strings.ToUpper(fsm.SHA1([]byte("INCR m"))) + "|0")
	s.want("EVAL loads too, upper case will do", ":2 ")
	s.m = restore(t, snapshotOf(t, s.m))
	s.group("EVALSHA|" + sha + "|0")
	s.want("after a restore", ":2 ")
	s.group("SCRIPT|FLUSH", "SCRIPT|EXISTS|"+sha, "SCRIPT|KILL")
	s.want("flushed", "+OK *1 :0 -NOTBUSY No scripts in execution right now. ")
	s.group("EVAL|(|0", "SCRIPT|EXISTS|"+fsm.SHA1([]byte("(")))
	s.want("does not compile", "-ERR Error compiling script *1 :0 ")
	s.group("EVAL|GET k|-1", "EVAL|GET k|2|a", "EVAL|GET k|x")
	s.want("bad counts", "-ERR Number of keys can't be negative -ERR Number of keys can't be greater than number of args -ERR value is not an integer or out of range ")
	s.group("EVAL_RO|SET a 1|0", "EVAL_RO|GET m|0", "EXISTS|a")
	s.want("read-only", "-ERR Write commands are not allowed from read-only scripts. $1 2 :0 ")
}

// transaction adds a group with one transaction, in RESP3.
func (s *stage) transaction(watch []fsm.Watch, commands ...string) {
	s.add(s.transactionOf(watch, commands))
}

func (s *stage) transactionOf(watch []fsm.Watch, commands []string) *fsm.Group {
	var g fsm.Group
	g.Reset(3, 1)
	var queued []fsm.Queued
	for _, c := range commands {
		cmd, args := s.words(c)
		queued = append(queued, fsm.Queued{Cmd: cmd, Args: args})
	}
	g.Transaction(watch, queued)
	return &g
}

func TestSpeculate_InTransaction(t *testing.T) {
	s := newStage(t)
	s.transaction(nil, "SET|k|1", "EVAL|INCR k\nGET none|0", "INCR|k")
	s.want("block with a script", "*3 +OK _ :3 ")
	s.transaction([]fsm.Watch{{Key: "k", Version: 1}}, "EVAL|INCR k|0")
	s.group("GET|k")
	s.want("broken watch", "_ / $1 3 ")
}

func TestSpeculate_Repeated(t *testing.T) {
	s := newStage(t)
	s.group("EVAL|INCR n|0")
	s.want("first", ":1 ")
	s.seq-- // the forwarder did not get the reply and sends the group again
	s.group("EVAL|INCR n|0")
	s.group("EVAL|INCR n|0")
	s.want("again, then the next", ":1 / :2 ")
	if s.lines.runs != 2 {
		t.Errorf("scripts were run %d times, want 2: a repeated group is not executed speculatively", s.lines.runs)
	}
}

// TestSpeculate_ErrorResult: if a script returns an error as its value, its
// writes stay. Only an error that is raised rolls them back.
func TestSpeculate_ErrorResult(t *testing.T) {
	s := newStage(t)
	s.group("EVAL|INCR failures\nresult nobody there|0", "GET|failures")
	s.want("returned error", "-ERR nobody there $1 1 ")
	s.group("EVAL|INCR failures\ntry INCR|0", "EVAL|INCR failures\ntry INCR\nGET failures|0", "GET|failures")
	s.want("caught errors", "-ERR Wrong number of args calling Redis command from script $1 2 $1 2 ")
}

func TestSpeculate_Shape(t *testing.T) {
	s := newStage(t)
	s.group("ZADD|z|1|a")
	s.commit()
	s.group("EVAL|ZRANGE z 0 -1 WITHSCORES|0", "EVAL|resp3\nZRANGE z 0 -1 WITHSCORES|0")
	s.want("RESP of the script", "*2 $1 a $1 1 *1 *2 $1 a $1 1 ")
	s.group("EVAL|readonly\nGET k\nSET k v|0", "EVAL|SELECT 3\nSET k v|0", "EXISTS|k", "EVAL|SELECT 3\nGET k|0", "EVAL|SELECT 16|0", "EVAL|PING|0", "EVAL|ECHO x|0")
	s.want("flags and sessions", "-ERR Write commands are not allowed from read-only scripts. +OK :0 $1 v -ERR DB index is out of range +PONG $1 x ")
}

// TestSpeculate_Chance: when nodes apply the effects of a script, they use the
// same random numbers and log positions as the script.
func TestSpeculate_Chance(t *testing.T) {
	s := newStage(t)
	members := "SADD|s"
	for i := range 100 {
		members += "|" + strconv.Itoa(i)
	}
	s.group(members)
	s.commit()
	for range 20 {
		s.group("SPOP|s", "EVAL|SRANDMEMBER s 3\nSPOP s\nRANDOMKEY\nSPOP s|0", "SPOP|s")
		s.group("SPOP|s")
		s.commit()
	}
}

func TestSpeculate_TooLarge(t *testing.T) {
	s := newStage(t)
	three := strings.Repeat("dup 8000000\nSET big x\n", 3)
	s.group("EVAL|SET k 1\n"+three+"|0", "EXISTS|k|big", "EVAL|SET k 1\ntry "+strings.ReplaceAll(three, "SET", "try SET")+"PING|0", "EXISTS|k|big")
	s.want("writes", "-"+tooBig+" :0 -"+tooBig+" :0 ")
	s.group("EVAL|dup 8000000\nSET big x\nSET other 1|0", "EVAL|MGET big big big|0", "EXISTS|big|other")
	s.want("reply", "+OK -"+tooBig+" :2 ")
}

const tooBig = "ERR script answers or writes more than 16 MiB and was rolled back"

// TestSpeculate_Rest: Run closes an entry when its scripts have taken enough
// time, or when the entry is large. No group is lost or executed twice.
func TestSpeculate_Rest(t *testing.T) {
	s := newStage(t)
	s.enough = true
	for range 5 {
		s.group("EVAL|INCR n|0")
		s.group("INCR|n")
	}
	var replies []string
	entries := 0
	for groups, _ := s.batch.Len(); groups > 0; groups, _ = s.batch.Len() {
		replies = append(replies, s.entry()...)
		entries++
	}
	if got, want := strings.Join(replies, ""), ":1 :2 :3 :4 :5 :6 :7 :8 :9 :10 "; got != want || entries != 6 {
		t.Errorf("%d entries, %q, want 6, %q", entries, got, want)
	}
	s.enough = false
	for range 3 {
		s.group("EVAL|dup 3000000\nSET big x|0")
	}
	if first := s.entry(); len(first) != 2 {
		t.Errorf("an entry of 6 MB holds %d groups, want 2", len(first))
	}
	s.want("the third", "+OK ")
}

// TestSpeculate_NothingDone: if a script changes nothing, the log contains only
// its reply.
func TestSpeculate_NothingDone(t *testing.T) {
	s := newStage(t)
	s.group("SET|k|v", "EVAL|SET k w NX\nDEL none\nGET k|0")
	s.commit()
	s.group("EVAL|SET k w NX\nDEL none\nGET k|0")
	s.want("no effect", "$1 v ")
	if s.size > 110 {
		t.Errorf("entry of %d bytes for a script that did nothing, want at most 110", s.size)
	}
}

// eventsOf executes a group speculatively, applies an entry with this group
// alone as the first entry, and returns its events.
func (s *stage) eventsOf(g *fsm.Group) []fsm.Event {
	s.t.Helper()
	s.add(g)
	h := fsm.Header{Term: 1, Stamp: 1, Wall: 1, Seed: 1}
	var out, rest fsm.BatchBuilder
	if err := s.m.Speculate(h, &s.batch, s.runner).Run(&out, &rest, func() bool { return false }); err != nil {
		s.t.Fatal(err)
	}
	res, err := s.m.Apply(1, 1, out.Encode(h))
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Events
}

func TestSpeculate_Events(t *testing.T) {
	s := newStage(t)
	s.m.Want(fsm.Kinds(fsm.EventPublish, fsm.EventTracked))
	var g fsm.Group
	g.Reset(3, 7)
	g.Track()
	cmd, args := s.words("EVAL|PUBLISH news hello\nGET k\nGET k|1|k")
	g.Command(cmd, 0, args)
	var got []string
	note := func(events []fsm.Event) {
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Key, " ", string(e.Payload), e.Name, " ", e.Origin))
		}
	}
	note(s.eventsOf(&g))
	if want := fmt.Sprintf("[%d news hello 7 %d k  7]", fsm.EventPublish, fsm.EventTracked); fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}

	// A write with a deadline in the past emits an event, although it changes
	// nothing.
	s = newStage(t)
	s.group("_setsetting|notify-keyspace-events|K$xg")
	s.commit()
	s.m.Want(fsm.Kinds(fsm.EventKeyspace))
	s.group("EVAL|SET k v PXAT 1\nSET k v NX PXAT 1|0")
	s.commit()
	got = nil
	note(s.events)
	if want := "[1 k set 1 1 k expire 1 1 k expired 1 1 k set 1 1 k expire 1 1 k expired 1]"; fmt.Sprint(got) != want {
		t.Errorf("events of keys that expire at once: %v, want %s", got, want)
	}
}

// TestSpeculate_EventsOfKeys: a script that reads emits read events for all
// keys that it was called with, and for no other keys. It emits them at its
// first read, and again at the first read after a write. A script that does not
// read emits none.
func TestSpeculate_EventsOfKeys(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"GET k|2|k|l", "[read k read l]"},
		{"GET k\nGET l\nGET m|2|k|l", "[read k read l]"},
		{"GET m|0", "[]"},
		{"PUBLISH ch m|2|k|l", "[]"},
		{"SET k v|2|k|l", "[changed k]"},
		{"GET k\nSET l v\nSET m v\nGET m|2|k|l", "[read k read l changed l changed m read k read l]"},
		{"GET k\nSET k v NX\nSET k w NX\nGET k|1|k", "[read k changed k read k]"},
	} {
		s := newStage(t)
		s.m.Want(fsm.Kinds(fsm.EventChanged, fsm.EventTracked))
		var g fsm.Group
		g.Reset(3, 7)
		g.Track()
		cmd, args := s.words("EVAL|" + c.script)
		g.Command(cmd, 0, args)
		got := []string{}
		for _, e := range s.eventsOf(&g) {
			got = append(got, map[fsm.EventKind]string{fsm.EventChanged: "changed ", fsm.EventTracked: "read "}[e.Kind]+e.Key)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%q: events %v, want %s", c.script, got, c.want)
		}
	}
}

// TestSpeculate_EventsOfTransaction: the log contains the effects of a
// transaction that has a script. The reads of the transaction outside the
// script emit events too.
func TestSpeculate_EventsOfTransaction(t *testing.T) {
	s := newStage(t)
	s.m.Want(fsm.Kinds(fsm.EventChanged, fsm.EventTracked))
	var g fsm.Group
	g.Reset(3, 7)
	g.Track()
	var queued []fsm.Queued
	for _, line := range []string{"GET|a", "EVAL|SET k v\nGET b|2|k|b", "MGET|c|k", "SET|d|v"} {
		cmd, args := s.words(line)
		queued = append(queued, fsm.Queued{Cmd: cmd, Args: args})
	}
	g.Transaction(nil, queued)
	var got []string
	for _, e := range s.eventsOf(&g) {
		got = append(got, map[fsm.EventKind]string{fsm.EventChanged: "changed ", fsm.EventTracked: "read "}[e.Kind]+e.Key)
	}
	if want := "[read a changed k read k read b read c read k changed d]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

// TestScriptCache: below FeatureScriptCache, new scripts evict scripts of EVAL,
// but not scripts of SCRIPT LOAD.
func TestScriptCache(t *testing.T) {
	s := newStage(t)
	exists := func(bodies ...string) string {
		c := "SCRIPT|EXISTS"
		for _, b := range bodies {
			c += "|" + fsm.SHA1([]byte(b))
		}
		s.group(c)
		return s.commit()
	}
	s.group("SCRIPT|LOAD|PING kept", "EVAL|PING first|0", "EVAL|PING second|0", "SCRIPT|LOAD|PING second")
	s.commit()
	for i := range fsm.MaxEvalScripts - 1 {
		s.group(fmt.Sprintf("EVAL|PING %d|0", i))
	}
	s.commit()
	if got, want := exists("PING kept", "PING first", "PING second", "PING 0"), "*4 :1 :1 :1 :1 "; got != want {
		t.Errorf("a full cache holds %q, want %q", got, want)
	}
	s.m = restore(t, snapshotOf(t, s.m))
	s.group("EVAL|PING last|0")
	s.commit()
	if got, want := exists("PING kept", "PING first", "PING second", "PING 0"), "*4 :1 :0 :1 :1 "; got != want {
		t.Errorf("after one more it holds %q, want %q", got, want)
	}
	pad := strings.Repeat("-", fsm.MaxScriptBytes-20)
	full := 0
	s.quick = true
	for i := range 40 {
		s.group(fmt.Sprintf("SCRIPT|LOAD|--%s%d", pad, i))
		if strings.HasPrefix(s.commit(), "-ERR script cache is full") {
			full++
		}
	}
	if full == 0 || full > 12 {
		t.Errorf("%d of 40 scripts of a MiB were refused, want 1 to 12", full)
	}
	s.group("EVAL|PING whatever|0", "SCRIPT|LOAD|"+pad+pad, "EVAL|"+pad+pad+"|0")
	s.want("full", "$8 whatever -ERR script is longer than 1 MiB -ERR script is longer than 1 MiB ")
	s.group("SCRIPT|FLUSH|SYNC")
	s.commit()
	if got := exists("PING kept"); got != "*1 :0 " {
		t.Errorf("after a flush: %q, want no script", got)
	}
}

func TestRead_Script(t *testing.T) {
	s := newStage(t)
	read := func(req fsm.ReadRequest, commands ...string) (string, error) {
		var g fsm.Group
		g.Reset(2, 1)
		for _, c := range commands {
			cmd, args := s.words(c)
			g.Command(cmd, 0, args)
		}
		if g.Write {
			t.Errorf("%q is routed as a write", commands)
		}
		if err := s.table.Check(g.Bytes(), true); err != nil {
			t.Fatal(err)
		}
		req.Body = g.Bytes()
		out, expiryPending, err := s.m.Clone().Read(nil, req)
		if expiryPending {
			return "expiry pending", err
		}
		return strings.ReplaceAll(string(out), "\r\n", " "), err
	}
	with := fsm.ReadRequest{Runner: s.runner}
	if _, err := read(with, "EVAL_RO|GET k|0"); !errors.Is(err, fsm.ErrUnlogged) || s.lines.runs != 0 {
		t.Errorf("a script that is not in the cache: %v after %d runs, want ErrUnlogged after 0", err, s.lines.runs)
	}
	s.group("SET|k|v|PX|5000", "SCRIPT|LOAD|GET k", "SCRIPT|LOAD|SET k w", "EVAL_RO|GET k|0")
	s.commit()
	for _, c := range []struct{ line, want string }{
		{"EVAL_RO|GET k|0", "$1 v "},
		{"EVALSHA_RO|" + fsm.SHA1([]byte("GET k")) + "|0", "$1 v "},
		{"EVALSHA_RO|" + strings.Repeat("f", 40) + "|0", "-NOSCRIPT No matching script. Please use EVAL. "},
		{"EVAL_RO|SET k w|0", "-ERR Write commands are not allowed from read-only scripts. "},
		{"SCRIPT|EXISTS|" + fsm.SHA1([]byte("GET k")), "*1 :1 "},
		{"SCRIPT|KILL", "-NOTBUSY No scripts in execution right now. "},
		{"SCRIPT|DEBUG|NO", "+OK "},
	} {
		if got, err := read(with, c.line); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.line, got, err, c.want)
		}
	}
	late := with
	late.Now = s.stamp + 6e9
	if got, err := read(late, "EVAL_RO|GET k|0"); err != nil || got != "expiry pending" {
		t.Errorf("read of an expired key: %q, %v, want a pending expiry", got, err)
	}
	for _, c := range []struct {
		line    string
		running runs
		want    string
	}{
		{"SCRIPT|KILL", runs{script: fsm.Killed, function: fsm.Other}, "+OK "},
		{"FUNCTION|KILL", runs{script: fsm.Other, function: fsm.Killed}, "+OK "},
		{"FUNCTION|KILL", runs{script: fsm.Killed, function: fsm.Other}, "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE. "},
		{"SCRIPT|KILL", runs{script: fsm.Other, function: fsm.Killed}, "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE. "},
		{"FUNCTION|KILL", runs{script: fsm.NotBusy, function: fsm.NotBusy}, "-NOTBUSY No scripts in execution right now. "},
		{"FUNCTION|STATS", runs{}, "*4 $14 running_script *6 $4 name $1 f $7 command *3 $5 FCALL $1 f $1 0 $11 duration_ms :7 $7 engines *2 $3 LUA *4 $15 libraries_count :0 $15 functions_count :0 "},
	} {
		if got, err := read(fsm.ReadRequest{Scripts: c.running}, c.line); err != nil || got != c.want {
			t.Errorf("%s with %v: %q, %v, want %q", c.line, c.running, got, err, c.want)
		}
	}
	if got, err := read(fsm.ReadRequest{}, "EVAL_RO|GET k|0"); err != nil || !strings.HasPrefix(got, "-ERR this program has no interpreter") {
		t.Errorf("without an interpreter: %q, %v, want an error reply", got, err)
	}
}

func TestSpeculate_NoInterpreter(t *testing.T) {
	s := newStage(t)
	s.runner = nil
	s.group("EVAL|GET k|0", "SCRIPT|LOAD|GET k", "EVALSHA|"+fsm.SHA1([]byte("GET k"))+"|0", "SET|k|v")
	s.want("no interpreter", "-ERR this program has no interpreter for scripts, it only knows some by their SHA1 $40 "+fsm.SHA1([]byte("GET k"))+
		" -ERR this program has no interpreter for scripts, it only knows some by their SHA1 +OK ")
}

// TestSpeculate_Random runs random scripts among random commands. commit
// compares the state of the speculative execution with the state of every node.
func TestSpeculate_Random(t *testing.T) {
	words := []string{
		"SET a 1", "SET b 2 PX 3000", "SET a 3 NX", "INCR a", "DEL a b", "GET a", "SADD s 1 2 3 4 5", "SPOP s", "SRANDMEMBER s", "RPUSH l a b", "LPOP l",
		"HSET h f 1", "HINCRBY h f 2", "HINCRBY h f x", "ZADD z 1 a 2 b", "ZINCRBY z 5 a", "ZPOPMIN z", "EXPIRE a 2", "PERSIST b", "APPEND l x", "RANDOMKEY",
		"RENAME a b", "COPY b c", "GETDEL c", "SELECT 1", "FLUSHDB", "MSET a 1 b 2 c 3", "SETRANGE a 3 x", "EXPIREAT a 1700000005", "PUBLISH c x",
		"RPUSH q 1", "LPUSH l 2", "ZADD y 1 m", "RPUSH q 3",
		"XGROUP CREATE x g 0 MKSTREAM", "XADD x * f v", "XADD x * f w", "XREADGROUP GROUP g c COUNT 1 STREAMS x >", "XREADGROUP GROUP g d STREAMS x 0", "XAUTOCLAIM x g d 0 0", "XPENDING x g", "XGROUP DESTROY x g", "DEL x",
		"BLMPOP 0 2 m l LEFT", "BZMPOP 0 1 z MAX COUNT 2", "LMOVE l m LEFT LEFT",
	}
	waits := []string{"BLPOP|l|m|0", "BLMOVE|l|m|LEFT|RIGHT|0", "BRPOPLPUSH|m|l|0", "BZPOPMIN|z|0", "BLMPOP|0|1|m|LEFT|COUNT|2", "XREADGROUP|GROUP|g|e|BLOCK|0|STREAMS|x|>"}
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			s := newStage(t)
			for range 30 {
				for range 1 + rnd.IntN(4) {
					if s.origin = 1; rnd.IntN(3) == 0 {
						s.origin = 2 + rnd.Uint64N(5)
						s.group(waits[rnd.IntN(len(waits))])
						continue
					}
					var commands []string
					for range 1 + rnd.IntN(3) {
						var body []string
						for range rnd.IntN(6) {
							line := words[rnd.IntN(len(words))]
							if rnd.IntN(2) == 0 {
								line = "try " + line
							}
							body = append(body, line)
						}
						if rnd.IntN(6) == 0 {
							body = append(body, "fail")
						}
						switch plain := words[rnd.IntN(len(words))]; {
						case rnd.IntN(2) == 0 || strings.HasPrefix(plain, "SELECT"):
							commands = append(commands, "EVAL|"+strings.Join(body, "\n")+"|0")
						default:
							commands = append(commands, strings.ReplaceAll(plain, " ", "|"))
						}
					}
					if rnd.IntN(4) == 0 {
						s.transaction(nil, commands...)
					} else {
						s.group(commands...)
					}
				}
				s.commit()
			}
		})
	}
}

// TestSpeculate_Waiters: waiters are served before a script runs, so the script
// does not see the served values. Waiters for values that the script creates
// are served when the script has ended.
func TestSpeculate_Waiters(t *testing.T) {
	s := newStage(t)
	wait := func(origin uint64, command string) {
		s.t.Helper()
		s.origin = origin
		s.group(command)
		s.origin = 1
	}
	served := func(origin uint64, want string) {
		t.Helper()
		found := false
		for _, w := range s.m.WaitersOf(stageSession) {
			if w.Origin == origin {
				found = true
				if _, reply := s.m.Waiter(stageSession, origin, w.Pos); string(reply) != want {
					t.Errorf("connection %d got %q, want %q", origin, reply, want)
				}
			}
		}
		if !found {
			t.Errorf("connection %d has no waiter", origin)
		}
	}
	wait(7, "BLPOP|q|0")
	s.commit()
	s.group("RPUSH|q|1|2")
	s.group("EVAL|LLEN q|0")
	s.want("LLEN after a push", ":2 / :1 ")
	served(7, "*2\r\n$1\r\nq\r\n$1\r\n1\r\n")
	s.group("DEL|q")
	s.commit()
	wait(8, "BLPOP|q|0")
	s.group("EVAL|RPUSH q a b\nLLEN q|0", "EVAL|LLEN q|0")
	got := s.commit()
	if _, rest, _ := strings.Cut(got, "/ "); rest != ":2 :1 " {
		t.Errorf("pushes of a script: %q, want lengths 2 and 1", got)
	}
	served(8, "*2\r\n$1\r\nq\r\n$1\r\na\r\n")
	// A waiter gets nothing from a script that is rolled back, or that pops its own
	// elements.
	s.group("DEL|q")
	s.commit()
	wait(9, "BLPOP|q|0")
	s.group("EVAL|RPUSH q a\nfail|0", "EVAL|RPUSH q a\nLPOP q|0", "EVAL|BLMPOP 0 1 q LEFT|0", "EVAL|BLPOP q 0|0")
	got = s.commit()
	_, got, _ = strings.Cut(got, "/ ")
	if want := "-ERR failed script: " + fsm.SHA1([]byte("RPUSH q a\nfail")) + " $1 a *-1 -ERR This Redis command is not allowed from script "; got != want {
		t.Errorf("scripts that give nothing: got %q, want %q", got, want)
	}
	served(9, "")
}

// TestSpeculate_Golden fixes the format of effects and their meaning.
func TestSpeculate_Golden(t *testing.T) {
	const file = "testdata/golden-scripts-v1"
	s := newStage(t)
	s.group("SET|k|v", "SADD|s|1|2|3|4|5", "SCRIPT|LOAD|SPOP s\nGET $K")
	s.group("EVALSHA|"+fsm.SHA1([]byte("SPOP s\nGET $K"))+"|1|k", "EVAL|RPUSH l $A\nSET k w NX|0|x")
	s.transaction(nil, "INCR|n", "EVAL|INCR n\nSPOP s 2|0", "EVAL|fail|0")
	replies := s.commit()
	s.group("EVAL_RO|SMEMBERS s|0", "SCRIPT|FLUSH", "GET|n")
	replies += s.commit()
	if *golden {
		if err := os.WriteFile(file, s.entries, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.entries, want) {
		t.Error("the encoding of scripts in the log has changed: it needs a new entry version")
	}
	m := fsm.New(s.table)
	var again []string
	for index := uint64(1); len(want) > 0; index++ {
		n := 2 + int(want[0]) + int(want[1])<<8
		res, err := m.Apply(index, 1, want[2:n])
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range res.Groups {
			again = append(again, strings.ReplaceAll(string(g.Reply), "\r\n", " "))
		}
		want = want[n:]
	}
	if got := strings.Join(again, ""); got != strings.ReplaceAll(replies, "/ ", "") {
		t.Errorf("the replies to the golden entries are %q, want %q", got, replies)
	}
	if !bytes.Equal(snapshotOf(t, m), snapshotOf(t, s.m)) {
		t.Error("the golden entries give another state than the commands")
	}
}

// TestSpeculation_TooLong: a group without effects is proposed in place of a
// group whose script takes too long. The speculative execution of the next
// groups begins with the state from before this group. The test also checks dry
// runs, SplitGroup, and groups that are sent again after their dry run.
func TestSpeculation_TooLong(t *testing.T) {
	s := newStage(t)
	s.quick = true // until the clone is dropped, it contains effects of the script
	s.group("INCR|n")
	s.group("INCR|n", "EVAL|INCR n\nlong|0", "INCR|n")
	s.group("EVAL|INCR n|0")
	s.want("a script that takes too long", ":1 / \x00/ :2 ")

	body := func(script string) []byte {
		var g fsm.Group
		g.Reset(2, 1)
		for _, c := range []string{"INCR|n", "EVAL|" + script + "|0", "INCR|n"} {
			cmd, args := s.words(c)
			g.Command(cmd, 0, args)
		}
		return g.Bytes()
	}
	try := func(body []byte) string {
		replies, ops, cut, err := s.m.Clone().Try(fsm.Header{Term: 1, Stamp: s.stamp, Wall: 1}, body, s.runner, nil)
		if err != nil {
			t.Fatalf("dry run: %v", err)
		}
		return fmt.Sprint(strings.ReplaceAll(string(replies), "\r\n", " "), ops, cut)
	}
	ends, endless := body("INCR n\nlong"), body("INCR n\nlong without end")
	if got, want := try(ends), ":3 :4 :5 3 false"; got != want {
		t.Errorf("dry run: %s, want %s", got, want)
	}
	if got, want := try(endless), ":3 -ERR too long 3 true"; got != want { // the rest of the group does not change the result
		t.Errorf("dry run of a script without end: %s, want %s", got, want)
	}
	if first, second, ok := fsm.SplitGroup(ends); !ok || try(first) != ":3 1 false" || try(second) != ":3 :4 2 false" {
		t.Errorf("SplitGroup of a group: %v, %s and %s, want the first operation and the other two",
			ok, try(first), try(second))
	}
	var g fsm.Group
	g.Reset(3, 7)
	g.As("somebody")
	incr, args := s.words("INCR|n")
	g.Command(incr, 2, args)
	one := slices.Clone(g.Bytes())
	g.Transaction([]fsm.Watch{{DB: 1, Key: "k"}}, []fsm.Queued{{Cmd: incr, Args: args}, {Cmd: incr, Args: args}})
	if first, second, ok := fsm.SplitGroup(g.Bytes()); !ok || !bytes.Equal(first, one) {
		t.Errorf("SplitGroup of a command and a transaction: %v, %q and %q, want the two operations", ok, first, second)
	} else if _, _, ok := fsm.SplitGroup(second); ok || s.table.Check(second, false) != nil || len(first)+len(second) != len(g.Bytes())+len("\x09\x07\x08somebody") {
		t.Errorf("a transaction was divided, or the operation is not a transaction: %q", second)
	}
	g.Reset(2, 1)
	eval, script := s.words("EVAL|INCR n\nlong without end|0")
	g.Transaction(nil, []fsm.Queued{{Cmd: incr, Args: args}, {Cmd: eval, Args: script}, {Cmd: eval, Args: script}})
	runs := s.lines.runs
	if got, want := try(g.Bytes()), "*2 :3 -ERR too long 2 true"; got != want || s.lines.runs != runs+1 {
		t.Errorf("dry run of a transaction: %s, %d runs, want %s, one run", got, s.lines.runs-runs, want)
	}
	for _, c := range []struct {
		body []byte
		p    fsm.ScriptBudget
		want string
	}{
		{ends, fsm.DryRunPassed, ":3 :4 :5 "},
		{endless, fsm.GivenUp, ":6 -ERR too long :7 "},
	} {
		fsm.SetScriptBudget(c.body, c.p)
		if err := s.table.Check(c.body, false); err != nil {
			t.Fatal(err)
		}
		s.seq++
		s.batch.Add(stageSession, 0, s.seq, c.body)
		s.quick = false
		s.want("after the dry run", c.want)
	}
}
