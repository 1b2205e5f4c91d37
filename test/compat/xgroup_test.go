package compat

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// idleTimes matches the times in replies about pending entries and consumers:
// idle times, and times of day.
var idleTimes = regexp.MustCompile(
	`(\*4\r\n\$\d+\r\n\d+-\d+\r\n\$\d+\r\n[^\r]*\r\n|\$4\r\nidle\r\n|\$9\r\nseen-time\r\n|\*3\r\n\$\d+\r\n\d+-\d+\r\n):(\d+)\r\n`)

// treeNumbers matches the sizes of Redis's radix tree, which depend on the
// order of insertions.
var treeNumbers = regexp.MustCompile(`(\r\nradix-tree-(?:keys|nodes)\r\n):\d+`)

// withoutTimes removes the times from a reply and returns both.
func withoutTimes(raw string) (rest string, times []int64) {
	raw = treeNumbers.ReplaceAllString(raw, "$1:number")
	for _, m := range idleTimes.FindAllStringSubmatch(raw, -1) {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		times = append(times, n)
	}
	return idleTimes.ReplaceAllString(raw, "$1:time\r\n"), times
}

// DoTimes is like Do, for replies with times. The times may differ by up to
// five seconds.
func (p *pair) DoTimes(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		redis, holdfast := p.ask(line)
		p.compareTimes(line, redis[0], holdfast[0])
	}
}

func (p *pair) compareTimes(line, redis, holdfast string) {
	p.t.Helper()
	a, timesA := withoutTimes(redis)
	b, timesB := withoutTimes(holdfast)
	p.compare(line, a, b)
	if len(timesA) != len(timesB) {
		return
	}
	for i := range timesA {
		if d := timesA[i] - timesB[i]; d > 5000 || d < -5000 {
			p.t.Errorf("%s\n  redis    %q\n  holdfast %q", line, redis, holdfast)
			return
		}
	}
}

// streamReads returns commands that read the state of a stream and of its groups.
func streamReads(key string, groups ...string) []string {
	lines := []string{"XINFO STREAM " + key + " FULL COUNT 0", "XINFO STREAM " + key + " FULL",
		"XINFO STREAM " + key + " FULL COUNT 1", "XINFO GROUPS " + key}
	for _, g := range groups {
		lines = append(lines, "XINFO CONSUMERS "+key+" "+g, "XPENDING "+key+" "+g, "XPENDING "+key+" "+g+" - + 100")
	}
	return lines
}

func TestXgroup(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("XADD s 1-1 a 1", "XADD s 1-2 a 2", "SET k v")
		p.Do("XGROUP HELP", "XINFO HELP", "XINFO GROUPS s", "XINFO STREAM s FULL")
		p.DoError("XGROUP", "XGROUP FOO", "XGROUP CREATE", "XGROUP CREATE s g", "XGROUP SETID s g", "XGROUP DESTROY s",
			"XGROUP DESTROY s g x", "XGROUP CREATECONSUMER s g", "XGROUP CREATECONSUMER s g c d",
			"XGROUP DELCONSUMER s g", "XGROUP HELP x", "XINFO HELP x", "XINFO CONSUMERS s", "XINFO CONSUMERS s g x")
		for _, id := range []string{"0", "$", "1-1", "1", "1-x", "x", "+", "-", ">", "*", "", "5-5",
			"18446744073709551615-18446744073709551615", "18446744073709551616"} {
			for _, option := range []string{"", "MKSTREAM", "ENTRIESREAD 1", "ENTRIESREAD -1", "ENTRIESREAD 0 MKSTREAM",
				"mkstream entriesread 7", "ENTRIESREAD", "ENTRIESREAD x", "ENTRIESREAD -2", "FOO", "MKSTREAM FOO",
				"ENTRIESREAD 1 ENTRIESREAD 2", "ENTRIESREAD 9223372036854775807"} {
				if id == "" {
					id = `""`
				}
				for _, key := range []string{"s", "n", "k"} {
					p.Do("XGROUP CREATE "+key+" g "+id+" "+option, "XGROUP CREATE "+key+" g "+id+" "+option,
						"XGROUP SETID "+key+" g "+id+" "+option, "XINFO GROUPS "+key, "XGROUP DESTROY "+key+" g",
						"XGROUP DESTROY "+key+" g", "XGROUP SETID "+key+" g "+id+" "+option)
				}
				p.Do("EXISTS n", "DEL n")
			}
		}
		p.Do("XGROUP CREATE s g 0", "XGROUP CREATE s b 0", `XGROUP CREATE s "" 0`, "XGROUP CREATE s gg $",
			`XGROUP CREATE s "\xff" $`, `XGROUP CREATE s "b\x00c" 1-1`, "XINFO GROUPS s", "XINFO STREAM s")
		for _, line := range []string{"CREATECONSUMER s g c", "CREATECONSUMER s g c", `CREATECONSUMER s g ""`,
			"CREATECONSUMER s g a", "CREATECONSUMER s nog c", "CREATECONSUMER nokey g c", "CREATECONSUMER k g c",
			"DELCONSUMER s g a", "DELCONSUMER s g a", "DELCONSUMER s nog a", "DELCONSUMER nokey g a",
			"DELCONSUMER k g a", "DESTROY nokey g", "DESTROY k g", `SETID s "no\x00g" 0`, `SETID "no\r\nkey" g 0`,
			`SETID s "no\r\ng" 0`} {
			p.Do("XGROUP " + line)
		}
		p.DoTimes(streamReads("s", "g", "b", "nog")...)
		p.DoTimes("XINFO CONSUMERS nokey g", "XINFO CONSUMERS k g", "XINFO CONSUMERS s nog", "XINFO STREAM s FOO",
			"XINFO STREAM s FULL FOO", "XINFO STREAM s FULL COUNT", "XINFO STREAM s FULL FOO 1",
			"XINFO STREAM s FULL COUNT x", "XINFO STREAM s full count 1", "XINFO STREAM s FULL COUNT -1",
			"XINFO STREAM s FULL COUNT 1 2", "XINFO STREAM nokey FOO", "XINFO STREAM k FULL")
		p.Do("TYPE s", "OBJECT ENCODING s", "COPY s c", "XINFO GROUPS c", "XGROUP DESTROY c g", "XINFO GROUPS c",
			"XINFO GROUPS s", "RENAME s d", "XINFO GROUPS d", "MOVE d 3", "EXISTS d", "SELECT 3", "XINFO GROUPS d",
			"SELECT 0", "FLUSHALL", "XGROUP CREATE d g $ MKSTREAM", "XLEN d", "TYPE d", "XINFO STREAM d",
			"XADD d 1-1 f v", "XINFO GROUPS d")
	})
}

// TestXgroup_Watch checks transactions that watch a stream. A change of the
// stream's entries makes them fail, and a change of its groups does not.
func TestXgroup_Watch(t *testing.T) {
	both(t, func(p *pair) {
		o := p.other()
		p.setup("XADD s 1-1 f v", "XADD s 1-2 f v")
		for _, line := range []string{"XGROUP CREATE s g 0", "XREADGROUP GROUP g a COUNT 1 STREAMS s >",
			"XREADGROUP GROUP g a STREAMS s 0", "XCLAIM s g b 0 1-1", "XAUTOCLAIM s g c 0 0", "XACK s g 1-1",
			"XGROUP SETID s g 0", "XGROUP CREATECONSUMER s g x", "XGROUP DELCONSUMER s g x", "XSETID s 9-9",
			"XGROUP DESTROY s g", "XDEL s 1-1", "XADD s 9-10 f v", "XTRIM s MAXLEN 1", "DEL s",
			"XGROUP CREATE s g $ MKSTREAM"} {
			p.Do("WATCH s")
			o.Do(line)
			p.Do("MULTI", "XLEN s", "EXEC")
		}
	})
}

func TestXsetid(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v")
		for _, key := range []string{"s", "e", "nokey", "k"} {
			for _, rest := range []string{"1-1", "5", "x", "-", "+", "$", "9-9 ENTRIESADDED 1", "9-9 ENTRIESADDED 100",
				"9-9 ENTRIESADDED -1", "9-9 ENTRIESADDED x", "9-9 ENTRIESADDED", "9-9 MAXDELETEDID 3-3",
				"9-9 MAXDELETEDID 9-10", "9-9 MAXDELETEDID x", "9-9 FOO", "9-9 MAXDELETEDID 9-9 ENTRIESADDED 7",
				"18446744073709551615-18446744073709551615", "0-0 ENTRIESADDED 0 MAXDELETEDID 0-0",
				"9-9 entriesadded 5 maxdeletedid 0"} {
				p.Do("DEL s e", "XADD s 1-1 a 1", "XADD s 3-1 a 1", "XADD s 3-2 a 1", "XDEL s 3-1",
					"XGROUP CREATE e g 0 MKSTREAM", "XSETID "+key+" "+rest, "XINFO STREAM s", "XINFO STREAM e",
					"XADD s 9-* f v", "XADD e 9-* f v", "DEL s")
			}
		}
		p.DoError("XSETID", "XSETID s")
		p.Do("DEL s", "XADD s 1-1 f v", "XADD s 3-1 f v", "XADD s 5-1 f v", "XDEL s 5-1", "XSETID s 4-1 ENTRIESADDED 1",
			"XSETID s 4-1", "XSETID s 2-1 ENTRIESADDED 1", "XSETID s 5-1 ENTRIESADDED 1", "XTRIM s MAXLEN 0",
			"XSETID s 4-1", "XSETID s 5-1 ENTRIESADDED 0", "XINFO STREAM s")
	})
}

func TestXreadgroup(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v")
		for _, line := range []string{"GROUP g c STREAMS s", "GROUP g STREAMS s >", "GROUP g c STREAMS s r 0",
			"GROUP g c FOO STREAMS s >", "COUNT 1 STREAMS s s s s", "GROUP g c STREAMS s $", "GROUP g c STREAMS s x",
			"GROUP g c STREAMS s -", "GROUP g c STREAMS s +", "GROUP g c STREAMS nokey >", "GROUP nog c STREAMS s >",
			"GROUP nog c STREAMS s $", "GROUP g c STREAMS k >", "GROUP g c STREAMS s nokey > >",
			"GROUP g c STREAMS nokey s x >", "GROUP g c COUNT x STREAMS s >", "GROUP g c COUNT STREAMS s >",
			"GROUP g c BLOCK x STREAMS s >", "GROUP g c BLOCK -1 STREAMS s >", "GROUP g c NOACK NOACK COUNT",
			"NOACK COUNT 1 STREAMS s >", "GROUP g c STREAMS s r > x", "GROUP g c STREAMS s nokey 0 0",
			"GROUP g c STREAMS s >", "GROUP g c COUNT 1 STREAMS s >", "GROUP g c COUNT 0 STREAMS s >",
			"GROUP g c COUNT -5 STREAMS s >", "COUNT 1 GROUP g c STREAMS s >", "group g c count 2 streams s >",
			"GROUP g c NOACK STREAMS s >", "NOACK GROUP g c STREAMS s r > >", "GROUP g c STREAMS s r > 0",
			"GROUP g c STREAMS r s 0 >", "GROUP g c STREAMS s 0", "GROUP g c STREAMS s s > >",
			"GROUP g c STREAMS s s > 0", "GROUP g c BLOCK 1 STREAMS s >", "GROUP g c BLOCK 1 STREAMS s r 0 >",
			"GROUP g c BLOCK 1 STREAMS r >", "GROUP a b GROUP g c STREAMS s >", "GROUP streams STREAMS STREAMS s >",
			"GROUP g c COUNT 1 COUNT 2 STREAMS s >", "GROUP g c STREAMS s 18446744073709551615-18446744073709551615",
			"GROUP g c STREAMS s 18446744073709551615-18446744073709551614"} {
			p.Do("DEL s r", "XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE r g 0 MKSTREAM", "XGROUP CREATE s streams 0",
				"XADD s 1-1 a 1", "XADD s 1-2 a 2", "XADD s 2-1 a 3", "XREADGROUP "+line, "XREADGROUP "+line)
			p.DoTimes(streamReads("s", "g")...)
			p.DoTimes(streamReads("r", "g")...)
		}
		// This part reads the history of consumers, with deleted entries, and
		// resets groups.
		p.Do("DEL s", "XGROUP CREATE s g 0 MKSTREAM")
		for i := range 6 {
			p.Do(fmt.Sprintf("XADD s %d-1 f %d", i+1, i))
		}
		p.Do("XREADGROUP GROUP g a COUNT 3 STREAMS s >", "XREADGROUP GROUP g b COUNT 2 STREAMS s >", "XDEL s 2-1 5-1")
		p.DoTimes(streamReads("s", "g")...)
		for _, c := range []string{"a", "b", "c"} {
			for _, from := range []string{"0", "1-1", "2", "(1-1", "3-1", "99"} {
				p.Do("XREADGROUP GROUP g "+c+" STREAMS s "+from, "XREADGROUP GROUP g "+c+" COUNT 1 STREAMS s "+from)
			}
		}
		p.DoTimes(streamReads("s", "g")...)
		p.Do("XGROUP SETID s g 0", "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
			"XREADGROUP GROUP g c NOACK COUNT 1 STREAMS s >", "XREADGROUP GROUP g a COUNT 1 STREAMS s >")
		p.DoTimes(streamReads("s", "g")...)
		p.Do("XDEL s 6-1", "XREADGROUP GROUP g c STREAMS s >", "XINFO GROUPS s", "XADD s 7-1 f v", "XDEL s 7-1",
			"XREADGROUP GROUP g c STREAMS s >", "XINFO GROUPS s", "XTRIM s MAXLEN 0",
			"XREADGROUP GROUP g c STREAMS s >", "XREADGROUP GROUP g c STREAMS s 0", "XINFO GROUPS s",
			"XGROUP DELCONSUMER s g c", "XGROUP DELCONSUMER s g a", "XPENDING s g", "XGROUP DESTROY s g",
			"XREADGROUP GROUP g c STREAMS s >")
		p.Do("MULTI", "XGROUP CREATE m g 0 MKSTREAM", "XREADGROUP GROUP g c BLOCK 0 STREAMS m >", "XADD m 1-1 f v",
			"XREADGROUP GROUP g c BLOCK 0 STREAMS m >", "XACK m g 1-1", "EXEC")
		p.Do(`EVAL "return redis.call('XREADGROUP','GROUP','g','c','STREAMS','m','>')" 0`,
			`EVAL "redis.call('xadd','m','2-2','f','v') return redis.call('XREADGROUP','GROUP','g','c','STREAMS','m','>')" 0`, `EVAL "return redis.call('xgroup','create','m2','g','$','mkstream')" 0`, `EVAL "return redis.call('xclaim','m','g','d','0','2-2','justid')" 0`, `EVAL "return redis.call('xread','block','0','streams','nos','$')" 0`, `EVAL "return redis.call('XREADGROUP','GROUP','g','c','BLOCK','0','STREAMS','m','>')" 0`, `EVAL_RO "return redis.call('xreadgroup','group','g','c','streams','m','>')" 0`, `EVAL_RO "return redis.call('xpending','m','g')" 0`)
		p.DoTimes(streamReads("m", "g")...)
		p.Do("COMMAND GETKEYS XREADGROUP GROUP g c STREAMS a b > >", "COMMAND GETKEYS XGROUP CREATE k g $",
			"COMMAND GETKEYS XINFO CONSUMERS k g", "COMMAND GETKEYS XCLAIM k g c 0 1-1",
			"COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c STREAMS a b > >", "XREAD GROUP g c STREAMS s >",
			"XREAD NOACK STREAMS s >", "XREAD STREAMS s GROUP")
	})
}

func TestXpending(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET k v", "XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE s empty 0")
		for i := range 12 {
			p.Do(fmt.Sprintf("XADD s %d-1 f %d", i+1, i))
		}
		p.Do("XREADGROUP GROUP g a COUNT 4 STREAMS s >", "XREADGROUP GROUP g b COUNT 4 STREAMS s >",
			"XREADGROUP GROUP g c COUNT 2 STREAMS s >", "XREADGROUP GROUP g d STREAMS s 0")
		p.Do("XCLAIM s g a 0 2-1 6-1 IDLE 100000", "XCLAIM s g a 0 7-1 TIME 1000 RETRYCOUNT 7 JUSTID")
		for _, rest := range []string{"", "-", "- +", "- + 10", "- + 3", "- + 0", "- + -1", "- + x", "x + 10", "- y 10",
			"(1-1 (5 10", "(18446744073709551615-18446744073709551615 + 1", "- (0-0 1", "5 2 10", "3 3 10", "- + 10 a",
			"- + 1 a", "- + 10 nobody", "- + 10 d", "3 7 10 b", "(5-1 + 10 b", "- + 10 a b", "IDLE 50000 - + 10",
			"IDLE 50000 - + 1", "IDLE 50000 - + 10 a", "IDLE 0 - + 10", "IDLE -1 - + 10", "IDLE x - + 10", "IDLE 1 - +",
			"IDLE 1", "IDLE 1 - + 10 a b", "idle 9223372036854775807 - + 10", "FOO 1 - + 10"} {
			p.DoTimes("XPENDING s g "+rest, "XPENDING s empty "+rest, "XPENDING s nog "+rest, "XPENDING nokey g "+rest,
				"XPENDING k g "+rest)
		}
		p.Do("XACK s g 1-1 1-1 99-1", "XACK s g 1-1", "XACK s g x", "XACK s g 3-1 x", "XACK s nog x", "XACK nokey g x",
			"XACK k g 1-1", "XACK s g 3-1 4-1 5-1", "XACK s g -", "XACK s g 9")
		p.DoError("XPENDING s", "XACK s g", "XCLAIM s g c 0", "XAUTOCLAIM s g c 0")
		p.DoTimes(streamReads("s", "g", "empty")...)
	})
}

func TestXclaim(t *testing.T) {
	both(t, func(p *pair) {
		for _, rest := range []string{"c 0 1-1", "c 0 1-1 2-1 3-1", "a 0 1-1", "c 0 9-9", "c 0 9-9 1-1", "c 0 1-1 1-1",
			"c 100000 1-1", "c -5 1-1", "c x 1-1", "c 0 5-1", "c 0 5-1 FORCE", "c 0 5-1 force justid", "c 0 9-9 FORCE",
			"c 0 1-1 JUSTID", "c 0 1-1 RETRYCOUNT 5", "c 0 1-1 RETRYCOUNT 0 JUSTID", "c 0 1-1 RETRYCOUNT -1",
			"c 0 1-1 RETRYCOUNT x", "c 0 1-1 RETRYCOUNT 9223372036854775807", "c 0 1-1 IDLE 100000",
			"c 0 1-1 IDLE -100000", "c 0 1-1 IDLE x", "c 0 1-1 IDLE 9223372036854775807", "c 0 1-1 TIME 1000",
			"c 0 1-1 TIME -1", "c 0 1-1 TIME -2", "c 0 1-1 TIME 9223372036854775807", "c 0 1-1 TIME x",
			"c 0 1-1 IDLE 5 TIME 1000", "c 0 1-1 LASTID 4-1", "c 0 1-1 LASTID 0-1", "c 0 9-9 LASTID 4-1",
			"c 0 1-1 LASTID x", "c 0 1-1 LASTID", "c 0 1-1 IDLE", "c 0 1-1 FOO", `c 0 1-1 "F\r\nOO"`, "c 0 x",
			"c 0 JUSTID", "c 0 1-1 FORCE 2-1", "c 0 2-1", "c 0 2-1 JUSTID FORCE", "c 0 2-1 2-1 FORCE",
			"c 5000 5-1 5-1 FORCE IDLE 100000", "c 200000 5-1 5-1 FORCE IDLE 100000", "c 0 6 FORCE", `"" 0 1-1`} {
			p.Do("DEL s", "XGROUP CREATE s g 0 MKSTREAM")
			for i := range 6 {
				p.Do(fmt.Sprintf("XADD s %d-1 f %d", i+1, i))
			}
			p.Do("XREADGROUP GROUP g a COUNT 2 STREAMS s >", "XREADGROUP GROUP g b COUNT 1 STREAMS s >", "XDEL s 2-1",
				"XCLAIM s g "+rest)
			p.DoTimes(streamReads("s", "g")...)
			p.Do("XCLAIM s g " + rest)
			p.DoTimes(streamReads("s", "g")...)
		}
		p.setup("SET k v")
		p.Do("XCLAIM s nog c 0 1-1", "XCLAIM nokey g c 0 1-1", "XCLAIM k g c 0 1-1", "XCLAIM s nog c x 1-1")
	})
}

func TestXautoclaim(t *testing.T) {
	both(t, func(p *pair) {
		for _, rest := range []string{"c 0 0", "c 0 -", "c 0 +", "c 0 3", "c 0 (3-1",
			"c 0 (18446744073709551615-18446744073709551615", "c 0 x", "c x 0", "c -1 0", "c 0 0 COUNT 1",
			"c 0 0 COUNT 2", "c 0 0 COUNT 3 JUSTID", "c 0 0 COUNT 0", "c 0 0 COUNT -1", "c 0 0 COUNT x", "c 0 0 COUNT",
			"c 0 0 COUNT 576460752303423488", "c 0 0 JUSTID", "c 0 0 justid count 1", "c 0 0 FOO", "c 50000 0",
			"c 50000 0 COUNT 1", "c 200000 0", "c 200000 0 COUNT 1", "a 0 0", "a 0 3-1 COUNT 2", "nobody 0 99",
			"c 0 5 COUNT 100"} {
			p.Do("DEL s", "XGROUP CREATE s g 0 MKSTREAM")
			for i := range 16 {
				p.Do(fmt.Sprintf("XADD s %d-1 f %d", i+1, i))
			}
			p.Do("XREADGROUP GROUP g a COUNT 4 STREAMS s >", "XREADGROUP GROUP g b COUNT 10 STREAMS s >",
				"XDEL s 2-1 3-1 8-1 13-1", "XCLAIM s g b 0 4-1 14-1 IDLE 100000", "XAUTOCLAIM s g "+rest)
			p.DoTimes(streamReads("s", "g")...)
			p.Do("XAUTOCLAIM s g " + rest)
			p.DoTimes(streamReads("s", "g")...)
		}
		p.setup("SET k v")
		p.Do("XAUTOCLAIM s nog c 0 0", "XAUTOCLAIM nokey g c 0 0", "XAUTOCLAIM k g c 0 0", "XAUTOCLAIM s nog c 0 0 FOO")
	})
}

func TestXreadgroup_Waits(t *testing.T) {
	create := []string{"XGROUP CREATE s g $ MKSTREAM", "XGROUP CREATE s h $"}
	read := "XREADGROUP GROUP g "
	scenes := map[string][]string{
		"order": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> " + read + "b BLOCK 0 STREAMS s >",
			"XGROUP CREATECONSUMER s g a", "XADD s 1-1 f v", "a<", "XADD s 1-2 f v", "b<", "XPENDING s g"},
		"groups and readers": {"a> " + read + "a BLOCK 0 STREAMS s >",
			"b> XREADGROUP GROUP h a BLOCK 0 STREAMS s >", "c> XREAD BLOCK 0 STREAMS s $", "XADD s 1-1 f v", "a<", "b<",
			"c<"},
		"noack and count": {"a> " + read + "a BLOCK 0 COUNT 2 NOACK STREAMS s >",
			"b> " + read + "b BLOCK 0 STREAMS s >", "MULTI", "XADD s 1-1 f v", "XADD s 1-2 f v", "XADD s 1-3 f v",
			"EXEC", "a<", "b<", "XPENDING s g"},
		"several streams": {"XGROUP CREATE r g $ MKSTREAM", "a> " + read + "a BLOCK 0 STREAMS s r > >",
			"XADD r 1-1 f v", "a<", "b> " + read + "b BLOCK 0 STREAMS s r > >", "XADD s 1-1 f v", "b<"},
		"group destroyed": {"a> " + read + "a BLOCK 0 STREAMS s >",
			"b> XREADGROUP GROUP h a BLOCK 0 STREAMS s >", "XGROUP DESTROY s g", "a<", "XADD s 1-1 f v", "b<"},
		"key deleted": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> XREAD BLOCK 0 STREAMS s $", "DEL s",
			"a<", "XADD s 1-1 f v", "b<"},
		"key unlinked":          {"a> " + read + "a BLOCK 0 STREAMS s >", "UNLINK s", "a<"},
		"set":                   {"a> " + read + "a BLOCK 0 STREAMS s >", "SET s x", "a<"},
		"setex":                 {"a> " + read + "a BLOCK 0 STREAMS s >", "SETEX s 100 x", "a<"},
		"overwritten by a list": {"RPUSH l x", "a> " + read + "a BLOCK 0 STREAMS s >", "RENAME l s", "a<"},
		"stored over":           {"SADD z x", "a> " + read + "a BLOCK 0 STREAMS s >", "SUNIONSTORE s z", "a<"},
		"renamed away":          {"a> " + read + "a BLOCK 0 STREAMS s >", "RENAME s t", "a<"},
		"renamed over": {"XGROUP CREATE t x $ MKSTREAM", "a> " + read + "a BLOCK 0 STREAMS s >", "RENAME t s",
			"a<"},
		"another with the group": {"XGROUP CREATE t g $ MKSTREAM", "a> " + read + "a BLOCK 0 STREAMS s >", "RENAME t s",
			"XADD s 1-1 f v", "a<"},
		"moved":    {"a> " + read + "a BLOCK 0 STREAMS s >", "MOVE s 3", "a<"},
		"flushall": {"a> " + read + "a BLOCK 0 STREAMS s >", "FLUSHALL", "a<"},
		"flushdb": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> BLPOP q 0", "FLUSHDB", "a<", "RPUSH q 1",
			"b<"},
		"swapdb":             {"a> " + read + "a BLOCK 0 STREAMS s >", "SWAPDB 0 3", "a<"},
		"expired":            {"a> " + read + "a BLOCK 0 STREAMS s >", "PEXPIRE s 20", "a<"},
		"expire in the past": {"a> " + read + "a BLOCK 0 STREAMS s >", "EXPIRE s -1", "a<"},
		"deleted and created again": {"a> " + read + "a BLOCK 0 STREAMS s >", "MULTI", "DEL s",
			"XGROUP CREATE s g $ MKSTREAM", "EXEC", "XADD s 5-5 f v", "a<"},
		"deleted, made without": {"a> " + read + "a BLOCK 0 STREAMS s >", "MULTI", "DEL s", "XADD s 5-5 f v", "EXEC",
			"a<"},
		"added and deleted": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> XREAD BLOCK 0 STREAMS s $", "MULTI",
			"XADD s 1-1 f v", "XDEL s 1-1", "EXEC", "a<", "b<", "XGROUP CREATECONSUMER s g a",
			"XGROUP CREATECONSUMER s g b"},
		"xsetid does not wake": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> XREAD BLOCK 0 STREAMS s $",
			"XSETID s 9-9", "XDEL s 1-1", "XTRIM s MAXLEN 0", "EXPIRE s 100", "XADD s 9-10 f v", "a<", "b<"},
		"setid does not wake": {"XADD s 1-1 f v", "XADD s 1-2 f v", read + "x STREAMS s >",
			"a> " + read + "a BLOCK 0 STREAMS s >", "XGROUP SETID s g 0", "XDEL s 1-2", "XADD s 2-1 f v", "a<",
			"XPENDING s g"},
		"history does not wait": {"XREADGROUP GROUP g a BLOCK 0 STREAMS s 0",
			"XREADGROUP GROUP g a BLOCK 0 STREAMS s s > 0"},
		"timeout": {"a> " + read + "a BLOCK 200 STREAMS s >", "a<", "XADD s 1-1 f v", read + "b STREAMS s >"},
		"script": {"a> " + read + "a BLOCK 0 STREAMS s >", "b> " + read + "b BLOCK 0 STREAMS s >",
			`EVAL "redis.call('xadd','s','1-1','f','v'); return redis.call('xgroup','destroy','s','g')" 0`, "a<", "b<"},
		"script adds": {"a> " + read + "a BLOCK 0 STREAMS s >", `EVAL "return redis.call('xadd','s','1-1','f','v')" 0`,
			"a<"},
	}
	both(t, func(p *pair) {
		for name, lines := range scenes {
			t.Run(name, func(t *testing.T) {
				p := *p
				p.t = t
				p.setup("FLUSHALL")
				p.setup(create...)
				s := newScenario(&p)
				s.play(lines...)
				if len(s.waiting) > 0 {
					t.Errorf("still waiting: %v", s.waiting)
				}
			})
		}
	})
}

// TestRandom_Groups sends random commands on streams with groups.
func TestRandom_Groups(t *testing.T) {
	both(t, func(p *pair) {
		rng := rand.New(rand.NewPCG(*randomSeed, 900+uint64(p.proto)))
		for run := range *randomRuns {
			lines := []string{"FLUSHALL", "SELECT 0", "XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE r g 0 MKSTREAM"}
			for range 200 {
				lines = append(lines, randomGroupLine(rng))
			}
			lines = append(lines, streamReads("s", "g", "h")...)
			lines = append(lines, streamReads("r", "g", "h")...)
			redis, holdfast := p.ask(lines...)
			for i, line := range lines {
				p.compareTimes(line, redis[i], holdfast[i])
			}
			if t.Failed() || p.t.Failed() {
				p.t.Fatalf("seed %d, pipeline %d:\n%s", *randomSeed, run, strings.Join(lines, "\n"))
			}
		}
	})
}

func randomGroupLine(rng *rand.Rand) string {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	id := func() string { return fmt.Sprintf("%d-%d", 1+rng.IntN(12), rng.IntN(3)) }
	ids := func() string {
		out := id()
		for range rng.IntN(4) {
			out += " " + id()
		}
		return out
	}
	key := func() string { return pick("s", "s", "s", "r", "r", "nokey") }
	group := func() string { return pick("g", "g", "g", "h", "h") }
	consumer := func() string { return pick("a", "b", "c") }
	at := key() + " " + group()
	read := "XREADGROUP GROUP " + group() + " " + consumer() + pick("", "", " NOACK") + pick("", " COUNT 1", " COUNT 2")
	switch rng.IntN(26) {
	case 0, 1, 2, 3:
		return "XADD " + pick("s", "r") + " " + fmt.Sprintf("%d-*", 1+rng.IntN(12)) + " f v"
	case 4:
		return "XADD " + pick("s", "r") + " MAXLEN " + strconv.Itoa(rng.IntN(6)) + " " + id() + " f v"
	case 5, 6:
		return "XDEL " + key() + " " + ids()
	case 7:
		return "XTRIM " + key() + pick(" MAXLEN 4", " MAXLEN 2", " MINID "+id())
	case 8, 9, 10, 11:
		return read + " STREAMS " + pick("s", "r") + " >"
	case 12:
		return read + " STREAMS s r " + pick(">", "0", id()) + " " + pick(">", "0")
	case 13:
		return read + " STREAMS " + key() + " " + pick("0", id())
	case 14, 15:
		return "XACK " + at + " " + ids()
	case 16, 17:
		return "XCLAIM " + at + " " + consumer() + " " + pick("0", "0", "50000") + " " + ids() + pick("", " JUSTID",
			" FORCE", " FORCE JUSTID", " IDLE 100000", " RETRYCOUNT 3", " TIME 5000", " LASTID "+id())
	case 18:
		return "XAUTOCLAIM " + at + " " + consumer() + " " + pick("0", "50000") + " " + pick("0", id()) + pick("",
			" COUNT 1", " COUNT 3", " JUSTID")
	case 19:
		return "XGROUP CREATE " + at + " " + pick("0", "$", id()) + pick("", " MKSTREAM",
			" ENTRIESREAD "+strconv.Itoa(rng.IntN(5)))
	case 20:
		return "XGROUP SETID " + at + " " + pick("0", "$", id()) + pick("", " ENTRIESREAD "+strconv.Itoa(rng.IntN(5)))
	case 21:
		return "XGROUP " + pick("CREATECONSUMER ", "DELCONSUMER ") + at + " " + consumer()
	case 22:
		return pick("XGROUP DESTROY "+at, "XSETID "+key()+" "+id(), "XSETID "+key()+" 12-5 ENTRIESADDED 20",
			"COPY s r REPLACE", "COPY r s REPLACE", "RENAME r s")
	case 23:
		return "XPENDING " + at + pick("", " - + 10", " "+id()+" + 3", " - + 10 "+consumer(), " IDLE 50000 - + 10")
	case 24:
		return pick("XINFO GROUPS "+key(), "XINFO STREAM "+pick("s", "r")+" FULL", "XINFO CONSUMERS "+at, "XLEN "+key())
	}
	return "XRANGE " + key() + " - +"
}
