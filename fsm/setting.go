package fsm

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// Settings are values that CONFIG SET changes for the whole cluster. They are
// in the log and in snapshots, so every node uses the same values, even after a
// restart.

const (
	// SettingNotify is the name of the setting notify-keyspace-events.
	SettingNotify = "notify-keyspace-events"
	// SettingIdempotent is the name of the setting lock-idempotent: patterns of
	// keys, separated by spaces. See Ctx.Idempotent.
	SettingIdempotent = "lock-idempotent"
	// SettingDelay is the name of the setting lock-delay: patterns of keys, each
	// with a number of milliseconds, separated by spaces. See Ctx.lost.
	SettingDelay = "lock-delay"
	// SettingMaxMemory is the name of the setting maxmemory: a number of bytes,
	// 0 for no limit. See Machine.MaxMemory.
	SettingMaxMemory = "maxmemory"
)

// These are the internal commands behind CONFIG SET and CONFIG GET.
// SetSettingsCommand accepts every setting. GetSettingsCommand returns
// notify-keyspace-events, and every other setting that was ever changed.
// SetSettingCommand and GetSettingCommand accept only notify-keyspace-events, but
// programs of all versions know these two commands.
const (
	SetSettingCommand  = "_setsetting"
	GetSettingCommand  = "_getsetting"
	SetSettingsCommand = "_setsettings"
	GetSettingsCommand = "_getsettings"
)

// These limits bound the settings. The machine checks the meaning of
// notify-keyspace-events only. The node that executes CONFIG SET checks the
// other values.
const (
	maxSettings     = 512
	maxSettingName  = 64
	maxSettingValue = 512
)

// settings are the values that are kept as text, sorted by name. The slice is
// replaced and never changed, because clones share it.
type settings []setting

type setting struct{ name, value string }

// with returns a copy of the settings in which one setting is changed or added.
func (s settings) with(name, value string) settings {
	at, found := slices.BinarySearchFunc(s, name, func(e setting, name string) int {
		return strings.Compare(e.name, name)
	})
	next := slices.Clone(s)
	if found {
		next[at].value = value
		return next
	}
	return slices.Insert(next, at, setting{name, value})
}

var settingCommands = []Command{
	{
		Name: SetSettingCommand, Run: setSetting, Arity: 3, Flags: Internal | Write,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "name value",
		Doc:        "Change a setting of the cluster, for CONFIG SET",
	},
	{
		Name: SetSettingsCommand, Run: setSettings, Arity: -3, Flags: Internal | Write,
		Group: "internal", Since: "holdfast", Required: Required{Feature: FeatureMend},
		Complexity: "O(N) where N is the number of settings of the cluster",
		Syntax:     "name value [name value ...]",
		Doc:        "Change settings of the cluster, all or none, for CONFIG SET",
	},
	{
		Name: GetSettingsCommand, Run: getSettings, Arity: 1, Flags: Internal | Fast,
		Group: "internal", Since: "holdfast", Required: Required{Feature: FeatureMend},
		Complexity: "O(N) where N is the number of settings of the cluster",
		Doc:        "Return the settings of the cluster that were ever changed, for CONFIG GET",
	},
	{
		Name: GetSettingCommand, Run: getSetting, Arity: 2, Flags: Internal | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "name",
		Doc:        "Return a setting of the cluster, for CONFIG GET",
	},
}

const (
	msgNoSetting   = "ERR there is no such setting"
	msgSettingArgs = "ERR settings are not pairs of a name and a value, or are too long or too many"
	msgNoticeClass = "ERR Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
	msgNoMisses    = "ERR Events of class 'm' are not sent: reads do not go through the log."
)

func setSetting(c *Ctx, args [][]byte) Reply {
	if string(args[1]) != SettingNotify {
		return Error(msgNoSetting)
	}
	n, refusal := noticesOf(args[2])
	if refusal != "" {
		return Error(refusal)
	}
	c.Change()
	c.m.notices = n
	return OK
}

// noticesOf parses a value of notify-keyspace-events. refusal is the error text
// for an invalid value.
func noticesOf(value []byte) (n notices, refusal string) {
	n, ok := parseNotices(string(value))
	switch {
	case !ok:
		return 0, msgNoticeClass
	case n&noticeOf('m') != 0:
		return 0, msgNoMisses
	}
	return n, ""
}

func setSettings(c *Ctx, args [][]byte) Reply {
	next, notices := c.m.settings, c.m.notices
	args = args[1:]
	for ; len(args) > 1; args = args[2:] {
		name, value := string(args[0]), string(args[1])
		if name == SettingNotify {
			var refusal string
			if notices, refusal = noticesOf(args[1]); refusal != "" {
				return Error(refusal)
			}
			continue
		}
		if len(name) > maxSettingName || len(value) > maxSettingValue {
			return Error(msgSettingArgs)
		}
		next = next.with(name, value)
	}
	if len(args) > 0 || len(next) > maxSettings {
		return Error(msgSettingArgs)
	}
	c.Change()
	c.m.settings, c.m.notices = next, notices
	return OK
}

// Setting returns the value of a setting, or "" if the setting was never changed.
// It does not know notify-keyspace-events, which is not kept as text.
func (m *Machine) Setting(name string) string {
	for _, e := range m.settings {
		if e.name == name {
			return e.value
		}
	}
	return ""
}

// MaxMemory returns how many bytes the data set may have, 0 for no limit. set is
// false if the cluster has no such setting. No entry depends on the limit. The
// leader compares it with Bytes before it proposes an entry.
func (m *Machine) MaxMemory() (bytes int64, set bool) {
	if len(m.settings) == 0 {
		return 0, false
	}
	bytes, err := strconv.ParseInt(m.Setting(SettingMaxMemory), 10, 64)
	if err != nil || bytes < 0 {
		return 0, false // the node that accepted the setting has checked it
	}
	return bytes, true
}

func getSettings(c *Ctx, args [][]byte) Reply {
	all := []string{SettingNotify, c.m.notices.String()}
	for _, e := range c.m.settings {
		all = append(all, e.name, e.value)
	}
	return Strings(all...)
}

func getSetting(c *Ctx, args [][]byte) Reply {
	if string(args[1]) != SettingNotify {
		return Error(msgNoSetting)
	}
	return Bulk(c.m.notices.String())
}

// appendSettings writes settings into a snapshot: notify-keyspace-events, unless
// it is empty, and every other setting that was ever changed.
func (m *Machine) appendSettings(b []byte) []byte {
	if m.notices != 0 {
		b = codec.AppendString(append(b, recordSetting), SettingNotify)
		b = binary.AppendUvarint(b, uint64(m.notices))
	}
	for _, e := range m.settings {
		b = codec.AppendString(codec.AppendString(append(b, recordValue), e.name), e.value)
	}
	return b
}

// settingValue reads a setting that is kept as text.
func (m *Machine) settingValue(d *codec.Decoder) {
	name, value := string(d.Bytes()), string(d.Bytes())
	n := len(m.settings)
	if len(name) > maxSettingName || len(value) > maxSettingValue || n >= maxSettings ||
		n > 0 && m.settings[n-1].name >= name {
		d.Fail()
		return
	}
	m.settings = append(m.settings, setting{name, value})
}

// setting reads the record of notify-keyspace-events.
func (m *Machine) setting(d *codec.Decoder) {
	name, n := string(d.Bytes()), notices(d.Uvarint())
	if name != SettingNotify || n >= 1<<len(noticeLetters) {
		d.Fail()
		return
	}
	m.notices = n
}
