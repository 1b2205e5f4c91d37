package fsm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// TestSetting_Snapshot: a snapshot contains the setting notify-keyspace-events, and
// a restored machine uses it.
func TestSetting_Snapshot(t *testing.T) {
	m := fsm.New(command.NewTable())
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
		t.Errorf("at first the value is %q, want an empty one", got)
	}
	w.apply(1, false, []string{fsm.SetSettingCommand, fsm.SettingNotify, "KEx$"})
	w.apply(1, false, []string{fsm.SetSettingCommand, fsm.SettingNotify, "KEm"}) // refused
	var b bytes.Buffer
	if err := m.Clone().WriteSnapshot(&b, m.Sessions()); err != nil {
		t.Fatal(err)
	}
	restored, err := fsm.ReadSnapshot(&b, command.NewTable())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*fsm.Machine{m, restored} {
		if got := setting(m); got != "$4\r\n$xKE\r\n" {
			t.Errorf("the value is %q, want $xKE", got)
		}
		m.Want(fsm.Kinds(fsm.EventKeyspace))
		w := eventWriter{t: t, m: m, index: w.index, seq: w.seq, stamp: 1}
		if got, want := w.apply(1, false, []string{"set", "k", "v"}, []string{"del", "k"}), []string{"1 db0 k set session 0 origin 1"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	}
}

// TestSettings: SetSettingsCommand changes all of its settings or none.
// Snapshots contain the settings. The command needs FeatureMend.
func TestSettings(t *testing.T) {
	m := fsm.New(command.NewTable())
	w := eventWriter{t: t, m: m, stamp: 1}
	set := func(words ...string) string {
		t.Helper()
		return string(w.result(1, false, append([]string{fsm.SetSettingsCommand}, words...)).Groups[0].Reply)
	}
	if got := set("hz", "50"); !strings.HasPrefix(got, "-ERR '_setsettings' needs feature version") {
		t.Errorf("below FeatureMend: %q, want an error", got)
	}
	w.index++
	if _, err := m.Apply(w.index, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1, Stamp: 1}, fsm.TermStart{ClusterID: "c", Features: fsm.FeatureMend})); err != nil {
		t.Fatal(err)
	}
	get := func(m *fsm.Machine) string {
		t.Helper()
		var g fsm.Group
		g.Reset(2, 1)
		g.Command(m.Table().Find([]byte(fsm.GetSettingsCommand)), 0, [][]byte{nil})
		out, _, err := m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(out), "\r\n", " ")
	}
	const want = "*6 $22 notify-keyspace-events $3 xKE $2 hz $2 50 $11 lfu-decay-t $0  "
	for _, c := range [][3]string{
		{"hz 50 lfu-decay-t EMPTY notify-keyspace-events KEx", "+OK"},
		{"hz 60 notify-keyspace-events KEq", "-ERR Invalid event class character. Use 'Ag$lshzxeKEtmdn'."},
		{"hz 60 more", "-ERR settings are not pairs of a name and a value, or are too long or too many"},
		{"hz " + strings.Repeat("x", 513), "-ERR settings are not pairs of a name and a value, or are too long or too many"},
	} {
		if got := set(strings.Fields(c[0])...); got != c[1]+"\r\n" {
			t.Errorf("%s: reply %q, want %q", c[0], got, c[1])
		}
	}
	set("lfu-decay-t", "")
	clone := m.Clone()
	set("hz", "70")
	var b bytes.Buffer
	if err := clone.WriteSnapshot(&b, m.Sessions()); err != nil {
		t.Fatal(err)
	}
	restored, err := fsm.ReadSnapshot(&b, command.NewTable())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*fsm.Machine{clone, restored} {
		if got := get(m); got != want {
			t.Errorf("settings %q, want %q", got, want)
		}
	}
	if got := get(m); !strings.Contains(got, "$2 70 ") {
		t.Errorf("settings %q, want hz 70", got)
	}
}
