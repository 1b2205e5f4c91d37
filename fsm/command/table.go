package command

import "github.com/holdfast-kv/holdfast/fsm"

// families returns the command families of this package.
func families() [][]fsm.Command {
	return [][]fsm.Command{
		stringCommands,
		compareCommands,
		counterCommands,
		bitmapCommands,
		genericCommands,
		expireCommands,
		dumpCommands,
		scanCommands,
		sortCommands,
		hashCommands,
		listCommands,
		setCommands,
		zsetCommands,
		zsetOpCommands,
		geoCommands,
		hllCommands,
		streamCommands,
		xreadCommands,
		xgroupCommands,
		pendingCommands,
		popCommands,
		lockCommands,
	}
}

// NewTable returns the table of all commands: those of this package and those
// of package fsm.
func NewTable() *fsm.Table { return fsm.NewTable(families()...) }
