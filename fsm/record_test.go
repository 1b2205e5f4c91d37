package fsm_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestReadRecord: ReadRecord returns the contents of an encoded entry, and a
// documented error for a damaged one.
func TestReadRecord(t *testing.T) {
	table := command.NewTable()
	var g fsm.Group
	g.Reset(3, 9)
	arg := func(words ...string) (args [][]byte) {
		for _, w := range words {
			args = append(args, []byte(w))
		}
		return args
	}
	set, get := table.Find([]byte("SET")), table.Find([]byte("get"))
	g.Command(set, 0, arg("SET", "k", "v"))
	g.Transaction([]fsm.Watch{{DB: 1, Key: "w", Version: 7}}, []fsm.Queued{{DB: 2, Cmd: get, Args: arg("get", "k")}})
	var b fsm.BatchBuilder
	id := fsm.SessionID{NodeID: "n", Boot: 3}
	b.Add(id, 1, 2, g.Bytes())
	header := fsm.Header{Term: 5, Stamp: 6}
	got, err := fsm.ReadRecord(b.Encode(header))
	if err != nil {
		t.Fatal(err)
	}
	want := fsm.Record{Header: header, Sessions: []fsm.SessionID{id}, Groups: []fsm.RecordGroup{{Session: id, Seq: 2, Ops: []fsm.RecordOp{
		{Commands: []fsm.RecordCommand{{DB: 0, Args: []string{"set", "k", "v"}}}},
		{Transaction: true, Watches: []fsm.Watch{{DB: 1, Key: "w", Version: 7}}, Commands: []fsm.RecordCommand{{DB: 2, Args: []string{"get", "k"}}}},
	}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	spoiled := b.Encode(header)
	spoiled[len(spoiled)-1] ^= 1
	if _, err := fsm.ReadRecord(spoiled); !documented(err) {
		t.Errorf("damaged entry: %v, want a documented error", err)
	}
}
