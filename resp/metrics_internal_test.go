package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

func TestBucketOf(t *testing.T) {
	for i := range bucketCount {
		b := bucketBound(i)
		if got := bucketOf(b); got != i {
			t.Errorf("%v is in bucket %d, want %d", b, got, i)
		}
		if got := bucketOf(b + 1); got != i+1 {
			t.Errorf("a little more than %v is in bucket %d, want %d", b, got, i+1)
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1: 0, time.Hour: bucketCount, 1<<63 - 1: bucketCount} {
		if got := bucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}

func TestSum_Quantile(t *testing.T) {
	var s series
	for range 99 {
		s.add(bucketOf(time.Millisecond), 1, time.Millisecond)
	}
	s.add(bucketOf(time.Second), 1, time.Second)
	u := s.sum()
	for q, want := range map[float64]time.Duration{0.5: bucketBound(5), 0.99: bucketBound(5), 0.999: bucketBound(15)} {
		if got := u.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// TestErrorCounts_Bounded: scripts can return any number of codes.
func TestErrorCounts_Bounded(t *testing.T) {
	var e errorCounts
	for i := range 1000 {
		e.add(fmt.Sprintf("CODE%d text", i))
		e.add(strings.Repeat("X", 1000))
	}
	all := e.all()
	if len(all) > maxErrorCodes+1 || all["other"] == 0 {
		t.Errorf("%d codes, %d other", len(all), all["other"])
	}
	n := uint64(0)
	for _, c := range all {
		n += c
	}
	if n != 2000 {
		t.Errorf("%d errors counted, want 2000", n)
	}
}

func TestLogLimiter(t *testing.T) {
	var q logLimiter
	now := time.Unix(100, 0)
	for i, want := range []struct {
		at   time.Duration
		left int
		ok   bool
	}{{0, 0, true}, {1, 0, false}, {999 * time.Millisecond, 0, false}, {time.Second, 2, true}, {time.Second + 1, 0, false}, {3 * time.Second, 1, true}} {
		if left, ok := q.allow("a", now.Add(want.at)); left != want.left || ok != want.ok {
			t.Errorf("line %d: %d, %v, want %d, %v", i, left, ok, want.left, want.ok)
		}
	}
	if _, ok := q.allow("b", now); !ok {
		t.Error("another reason must wait")
	}
}

// TestMetrics_NoAllocation: recording a group allocates nothing.
func TestMetrics_NoAllocation(t *testing.T) {
	m, rows, out := metricsGroup(64)
	if n := testing.AllocsPerRun(100, func() { m.group(rows, time.Millisecond, out) }); n != 0 {
		t.Errorf("%v allocations a group", n)
	}
}

func metricsGroup(n int) (*Metrics, []*row, []byte) {
	table := clientPortRows(command.NewTable())
	m := newMetrics(table)
	var rows []*row
	for range n {
		rows = append(rows, table["set"])
	}
	return m, rows, []byte(strings.Repeat("$-1\r\n", n))
}

func BenchmarkMetrics_Group(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, rows, out := metricsGroup(n)
			for b.Loop() {
				m.group(rows, time.Millisecond, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/command")
		})
	}
}

// TestSyntax parses the syntax of every row and checks that no word is lost.
func TestSyntax(t *testing.T) {
	var rows []fsm.Command
	for _, r := range append(ConnectionCommands(), deref(command.NewTable().Rows())...) {
		rows = append(append(rows, r), r.Sub...)
	}
	for _, r := range rows {
		got := strings.Fields(flatten(parseSyntax(r.Syntax)))
		for _, w := range strings.FieldsFunc(r.Syntax, func(c rune) bool { return strings.ContainsRune(" []<>|", c) }) {
			if w != "..." && !slices.Contains(got, w) {
				t.Errorf("%s %s: %s got lost: %v", r.Name, r.Syntax, w, got)
			}
		}
	}
	for syntax, want := range map[string]string{
		"":                          "",
		"key":                       "key:key ",
		"key [key ...]":             "key:key* ",
		"key value [key value ...]": "key_value:block*(key:key value:string ) ",
		"[EX seconds | PX milliseconds | KEEPTTL]": "seconds:oneof?(EX=seconds:integer PX=milliseconds:integer KEEPTTL=keepttl:pure-token ) ",
		"<ON | OFF>": "on:oneof(ON=on:pure-token OFF=off:pure-token ) ",
		"[protover [AUTH username password] [SETNAME clientname]]": "protover:block?(protover:integer AUTH=auth:block?(username:string password:string ) SETNAME=clientname:string? ) ",
		"cursor [MATCH pattern] [COUNT count]":                     "cursor:integer MATCH=pattern:pattern? COUNT=count:integer? ",
		"]] a [":                                                   "a:string arg:string? ",
	} {
		if got := describe(parseSyntax(syntax)); got != want {
			t.Errorf("%s is %s, want %s", syntax, got, want)
		}
	}
}

func deref(rows []*fsm.Command) (out []fsm.Command) {
	for _, r := range rows {
		out = append(out, *r)
	}
	return out
}

func flatten(args []argument) string {
	var b strings.Builder
	for _, a := range args {
		b.WriteString(a.name + " " + a.token + " " + flatten(a.args) + " ")
	}
	return b.String()
}

func describe(args []argument) string {
	var b strings.Builder
	for _, a := range args {
		if a.token != "" {
			b.WriteString(a.token + "=")
		}
		b.WriteString(a.name + ":" + a.typ)
		if a.optional {
			b.WriteByte('?')
		}
		if a.multiple {
			b.WriteByte('*')
		}
		if a.args != nil {
			b.WriteString("(" + describe(a.args) + ")")
		}
		b.WriteByte(' ')
	}
	return b.String()
}
