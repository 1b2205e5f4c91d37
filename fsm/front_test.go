package fsm_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestReply_Encode: Encode passes the bytes that Append would append to its
// argument write, in pieces that are hardly larger than the largest string.
// Encode stops when write first returns an error.
func TestReply_Encode(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	many := make([]fsm.Reply, 20_000)
	for i := range many {
		many[i] = fsm.Bulk(fmt.Sprint(i))
	}
	for i, r := range []fsm.Reply{
		fsm.OK, fsm.Null, fsm.NullArray, fsm.None, fsm.Int(-5), fsm.Bulk(""), fsm.Bulk("a\r\nb"), fsm.Error("ERR a\nb"),
		fsm.Array(nil), fsm.Map([]fsm.Reply{fsm.Bulk("k"), fsm.Null}), fsm.Set([]fsm.Reply{fsm.One}), fsm.Map(nil), fsm.Set(nil),
		fsm.Double(1.5), fsm.Double(math.Inf(-1)), fsm.DecimalDouble("0.50000000000000001"), fsm.Verbatim("x"), fsm.VerbatimAs("mkd", "x"),
		fsm.Boolean(true), fsm.BigNumber("12345678901234567890"), fsm.Raw([]byte(":7\r\n")),
		fsm.Bulk(long), fsm.Verbatim(long), fsm.Raw([]byte(long)), fsm.Array(many),
		fsm.Array([]fsm.Reply{fsm.One, fsm.Bulk(long), fsm.Map([]fsm.Reply{fsm.Bulk(long), fsm.Array(many)}), fsm.Double(0.25), fsm.Bulk(long)}),
	} {
		for _, proto := range []int{2, 3} {
			want := r.Append(nil, proto)
			var got []byte
			most := 0
			if err := r.Encode(proto, func(b []byte) error {
				got = append(got, b...)
				most = max(most, len(b))
				return nil
			}); err != nil || !bytes.Equal(got, want) {
				t.Errorf("reply %d in RESP%d: %v, %d bytes that begin with %.50q, want %d that begin with %.50q", i, proto, err, len(got), got, len(want), want)
			}
			if size := fsm.EncodedSize(&r, proto); size != len(want) {
				t.Errorf("reply %d in RESP%d: size %d, want %d", i, proto, size, len(want))
			}
			if limit := 1<<20 + 256; most > limit {
				t.Errorf("reply %d in RESP%d: %d bytes at once, want %d at most", i, proto, most, limit)
			}
		}
	}
	broken := fmt.Errorf("broken")
	r := fsm.Array([]fsm.Reply{fsm.Bulk(long), fsm.Bulk(long)})
	calls := 0
	if err := r.Encode(2, func([]byte) error { calls++; return broken }); err != broken || calls != 1 {
		t.Errorf("write fails: Encode returned %v after %d calls, want the error of write after 1 call", err, calls)
	}
}

// TestRead_Pieces: the replies to the pieces of a group equal the replies to
// the whole group.
func TestRead_Pieces(t *testing.T) {
	f := newFeed(t)
	f.do("SETRANGE big 3000000 x", "SETRANGE middle 100000 y", "SET small z", "RPUSH list a b c", "SET number 1")
	for range 2 {
		for _, lines := range [][]string{
			{"GET small"},
			{"GET big"},
			{"GET big", "GET big"},
			{"GET small", "GET big", "GET small", "LRANGE list 0 -1"},
			{"GET middle", "GET middle", "GET middle", "GET middle", "GET small", "MGET big small big", "LPOS list b", "LRANGE number 0 -1"},
		} {
			for _, most := range []int{1, 1000, 150_000, 1 << 30} {
				f.group.Reset(3, 1)
				for _, l := range lines {
					f.add(strings.Fields(l)...)
				}
				want, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes()})
				if err != nil {
					t.Fatal(err)
				}
				var got []byte
				p := fsm.Front{Most: most}
				pieces := 0
				for left := true; left; pieces++ {
					out, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Front: &p})
					if err != nil {
						t.Fatal(err)
					}
					if got = append(got, out...); p.Large != nil {
						if !p.Large.Exceeds(most) {
							t.Errorf("%q in pieces of %d: the large reply %.50q does not exceed the limit",
								lines, most, p.Large.Append(nil, 3))
						}
						got = p.Large.Append(got, 3)
					}
					if len(out) > most+150_000 {
						t.Errorf("%q in pieces of %d: a piece has %d bytes", lines, most, len(out))
					}
					if left = p.Cut() && p.Left; left {
						if err := f.group.Skip(p.Ops); err != nil {
							t.Fatal(err)
						}
					}
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%q in %d pieces of %d: %d bytes, want %d", lines, pieces, most, len(got), len(want))
				}
				if most == 1 && pieces != len(lines) || most == 1<<30 && pieces != 1 {
					t.Errorf("%q in pieces of %d: %d pieces", lines, most, pieces)
				}
			}
		}
	}
	// A reply that is too large is refused before it is encoded, even if it is
	// the only reply of the group.
	f.group.Reset(2, 1)
	f.add(append([]string{"MGET"}, strings.Split(strings.Repeat("big ", 20), " ")...)...)
	p := fsm.Front{Most: 1}
	if out, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes(), Front: &p}); err != nil || len(out) > 0 || p.Large == nil || p.Large.Text() != fsm.ReplyTooLarge {
		t.Errorf("MGET of 60 MB: error %v, %d bytes, large reply %v, want only a large reply with the text "+
			"ReplyTooLarge", err, len(out), p.Large != nil)
	}
}
