package fsm

// VersionCommand is the internal read behind WATCH: it answers the version of a
// key, 0 if the key is absent.
const VersionCommand = "_version"

var internalCommands = []Command{
	{Name: VersionCommand, Arity: 2, Flags: Internal | Fast, Keys: Keys{1, 1, 1}, Group: "internal", Since: "holdfast", Complexity: "O(1)", Syntax: "key", Doc: "Answer the version of a key, for WATCH", Run: keyVersion},
}

func keyVersion(c *Ctx, args [][]byte) Reply { return Int(int64(c.versionOf(args[1]))) }
