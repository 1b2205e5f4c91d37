package fsm

import "encoding/binary"

// Settings are values that CONFIG SET changes for the whole cluster: they are in
// the log and in snapshots, so that every node goes by them, and a restarted one
// too.

// SettingNotify is notify-keyspace-events.
const SettingNotify = "notify-keyspace-events"

// Internal commands behind CONFIG SET and CONFIG GET of a setting.
const (
	SetSettingCommand = "_setsetting"
	GetSettingCommand = "_getsetting"
)

var settingCommands = []Command{
	{Name: SetSettingCommand, Arity: 3, Flags: Internal | Write, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "name value", Doc: "Change a setting of the cluster, for CONFIG SET", Run: setSetting},
	{Name: GetSettingCommand, Arity: 2, Flags: Internal | Fast, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "name", Doc: "Answer a setting of the cluster, for CONFIG GET", Run: getSetting},
}

const (
	msgNoSetting   = "ERR there is no such setting"
	msgNoticeClass = "ERR Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
	msgNoMisses    = "ERR Events of class 'm' are not sent: reads do not go through the log."
)

func setSetting(c *Ctx, args [][]byte) Reply {
	if string(args[1]) != SettingNotify {
		return Error(msgNoSetting)
	}
	n, ok := parseNotices(string(args[2]))
	switch {
	case !ok:
		return Error(msgNoticeClass)
	case n&noticeOf('m') != 0:
		return Error(msgNoMisses)
	}
	c.change()
	c.m.notices = n
	return OK
}

func getSetting(c *Ctx, args [][]byte) Reply {
	if string(args[1]) != SettingNotify {
		return Error(msgNoSetting)
	}
	return Bulk(c.m.notices.String())
}

// appendSettings writes the settings that are not as they are at first.
func (m *Machine) appendSettings(b []byte) []byte {
	if m.notices == 0 {
		return b
	}
	b = appendString(append(b, recordSetting), SettingNotify)
	return binary.AppendUvarint(b, uint64(m.notices))
}

// setting reads a record of appendSettings.
func (m *Machine) setting(d *decoder) {
	name, n := string(d.bytes()), notices(d.uvarint())
	if name != SettingNotify || n >= 1<<len(noticeLetters) {
		d.fail()
		return
	}
	m.notices = n
}
