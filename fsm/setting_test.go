package fsm_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// A setting is part of the state: it is in a snapshot, and a restored machine
// goes by it.
func TestSetting_Snapshot(t *testing.T) {
	m := fsm.New(fsm.NewTable())
	w := eventWriter{t: t, m: m, stamp: 1}
	setting := func(m *fsm.Machine) string {
		var g fsm.Group
		g.Reset(2, 1)
		g.Command(m.Table().Find([]byte(fsm.GetSettingCommand)), 0, [][]byte{nil, []byte(fsm.SettingNotify)})
		out, _, err := m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := setting(m); got != "$0\r\n\r\n" {
		t.Errorf("at first the setting is %q", got)
	}
	w.apply(1, false, []string{fsm.SetSettingCommand, fsm.SettingNotify, "KEx$"})
	w.apply(1, false, []string{fsm.SetSettingCommand, fsm.SettingNotify, "KEm"}) // refused
	var b bytes.Buffer
	if err := m.Fork().WriteSnapshot(&b, m.Sessions()); err != nil {
		t.Fatal(err)
	}
	restored, err := fsm.ReadSnapshot(&b, fsm.NewTable())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*fsm.Machine{m, restored} {
		if got := setting(m); got != "$4\r\n$xKE\r\n" {
			t.Errorf("the setting is %q", got)
		}
		m.Want(fsm.Kinds(fsm.EventKeyspace))
		w := eventWriter{t: t, m: m, index: w.index, seq: w.seq, stamp: 1}
		if got, want := w.apply(1, false, []string{"set", "k", "v"}, []string{"del", "k"}), []string{"1 db0 k set session 0 origin 1"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	}
}
