package script

import (
	"fmt"
	"strings"
)

// parseShebang parses the first line of a script if it begins with #!, and
// returns the rest of the script. The rest keeps the newline of the first line,
// so that line numbers do not change.
func parseShebang(src string) (flags Flags, body string, err error) {
	if !strings.HasPrefix(src, "#!") {
		return flags, src, nil
	}
	end := strings.IndexByte(src, '\n')
	if end < 0 {
		return flags, "", errShebang
	}
	flags.Shebang = true
	parts := strings.FieldsFunc(src[:end], func(r rune) bool { return strings.ContainsRune(" \t\r\v\f", r) })
	if parts[0] != "#!lua" {
		return flags, "", fmt.Errorf("ERR Unexpected engine in script shebang: %s", oneLine(parts[0]))
	}
	for _, option := range parts[1:] {
		list, ok := strings.CutPrefix(option, "flags=")
		if !ok {
			return flags, "", fmt.Errorf("ERR Unknown lua shebang option: %s", oneLine(option))
		}
		for _, name := range strings.Split(list, ",") {
			if err := flags.add(name); err != nil {
				return flags, "", err
			}
		}
	}
	return flags, src[end:], nil
}

func (f *Flags) add(name string) error {
	switch name {
	case "":
	case "no-writes":
		f.NoWrites = true
	case "allow-oom":
		f.AllowOOM = true
	case "allow-stale":
		f.AllowStale = true
	case "no-cluster":
		f.NoCluster = true
	case "allow-cross-slot-keys":
		f.AllowCrossSlots = true
	default:
		return fmt.Errorf("ERR Unexpected flag in script shebang: %s", oneLine(name))
	}
	return nil
}
