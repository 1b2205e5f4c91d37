package fsm

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Flags say what a command is allowed to do and how it must be routed.
type Flags uint32

const (
	// Write commands change state and go through the log.
	Write Flags = 1 << iota
	// Fast commands are O(1) or O(log n).
	Fast
	// DenyOOM commands can make the data set grow.
	DenyOOM
	// NoScript commands may not be called from a script.
	NoScript
	// Global commands look over a whole database, so that every overdue key
	// must be expired (by a logged tick) before they are answered.
	Global
	// Slow reads walk many keys: they run on a fork so that they do not hold up
	// the log.
	Slow
	// Dangerous commands are those that Redis puts in @dangerous.
	Dangerous
	// KeyspaceCat puts the command in @keyspace.
	KeyspaceCat
	// VariableFlags mark commands whose access differs with their options.
	VariableFlags
	// MovableKeys mark commands whose key positions depend on the arguments.
	MovableKeys
	// Internal commands are for the nodes themselves; clients cannot call them.
	Internal
	// MayWrite commands are routed as writes because they can publish or
	// replicate, although they are not writes to COMMAND.
	MayWrite
	// ReadOnly commands look at keys and change none. A command without Write
	// and ReadOnly (TIME, PING) has nothing to do with keys.
	ReadOnly
	// Scripted commands name a script that may need the interpreter: see
	// script.go.
	Scripted
	// The rest only describe a command to clients, as Redis does in COMMAND.
	Admin
	PubSub
	Blocking
	Loading
	Stale
	SkipMonitor
	NoAuth
	NoMandatoryKeys
	NoMulti
	NoAsyncLoading
	AllowBusy
	SkipSlowlog
	Asking
)

// Keys are the positions of the keys among the arguments, the command's name
// being position 0. Last counts from the end when negative. The zero value is
// a command without keys.
type Keys struct{ First, Last, Step int }

// Access says what a command does with its keys, as the key specs of COMMAND
// INFO print it ("RO", "RW", "OW", "RM" and the secondary flags).
type Access struct {
	Mode  string
	Flags string // space separated: access, update, insert, delete, …
	Notes string
}

// KeySpec is the access to some of a command's keys, for commands that do not
// treat all their keys alike (RENAME).
type KeySpec struct {
	Keys   Keys
	Access Access
	// NumKeys: the argument at Keys.First is the number of the keys after it.
	NumKeys bool
	// Keyword, if there is one, stands before the keys, somewhere from Keys.First
	// on; the keys are 1/Part of what follows.
	Keyword string
	Part    int
	// Unknown: where the keys are cannot be told from the arguments alone.
	Unknown bool
}

// Change is what a Redis version changed in a command.
type Change struct{ Since, What string }

// Command is one row of the command table: all there is to know of a command.
type Command struct {
	Name   string // lower case
	Arity  int    // as in Redis: negative means "at least", the name counts
	Flags  Flags
	Keys   Keys
	Access Access
	// Specs stand in the place of Access where keys differ in access.
	Specs []KeySpec
	// KeysOf finds the keys of commands with MovableKeys; it returns argument
	// positions, or nil when the arguments make no sense.
	KeysOf func(args [][]byte) []int
	Group  string // family as COMMAND DOCS names it: string, generic, …
	Since  string // first Redis version with this command (or "valkey 9.0")
	// Feature is the feature version of the cluster from which on the command can be
	// used: see feature.go. It is 0 for commands that every program in use knows.
	Feature    int
	Complexity string
	Syntax     string // arguments, as in the Redis documentation
	Doc        string // one sentence
	// Categories are ACL categories beyond those that flags and group imply,
	// without the @.
	Categories []string
	Tips       []string // hints for proxies and cluster clients, in Redis' words
	History    []Change
	// DeprecatedSince and ReplacedBy are set for commands that new programs
	// should not use.
	DeprecatedSince, ReplacedBy string
	// Run executes the command. args[0] is the name; the slices belong to the
	// entry: copy what is kept.
	Run func(c *Ctx, args [][]byte) Reply
	// Sub holds the rows of a container command's subcommands (OBJECT ENCODING).
	Sub []Command

	// block reads the arguments of a command that may wait (flag Blocking).
	block func(args [][]byte) (b blocking, fail Reply)

	sub map[string]*Command
	id  int
}

// IsWrite reports whether the command has to go through the log.
func (cmd *Command) IsWrite() bool { return cmd.Flags&(Write|MayWrite) != 0 }

// ArityOK reports whether n arguments (the name included) are acceptable.
func (cmd *Command) ArityOK(n int) bool {
	if cmd.Arity >= 0 {
		return n == cmd.Arity
	}
	return n >= -cmd.Arity
}

// KeyPositions returns the positions of the keys in args, or nil if there are
// none or the arguments do not fit.
func (cmd *Command) KeyPositions(args [][]byte) []int {
	if cmd.KeysOf != nil {
		return cmd.KeysOf(args)
	}
	if cmd.Keys.First == 0 {
		return nil
	}
	last := cmd.Keys.Last
	if last < 0 {
		last += len(args)
	}
	var pos []int
	for i := cmd.Keys.First; i <= last && i < len(args); i += cmd.Keys.Step {
		pos = append(pos, i)
	}
	return pos
}

// ID numbers the rows of a table from 0, for counters by command. It is not
// stable between versions and never leaves the process.
func (cmd *Command) ID() int { return cmd.id }

// families lists the command families: a line a family, not a line a command.
func families() [][]Command {
	return [][]Command{
		stringCommands,
		counterCommands,
		casCommands,
		bitmapCommands,
		bitfieldCommands,
		lcsCommands,
		genericCommands,
		expireCommands,
		objectCommands,
		dumpCommands,
		scanCommands,
		sortCommands,
		hashCommands,
		listCommands,
		setCommands,
		zsetCommands,
		zsetOpCommands,
		geoCommands,
		geosearchCommands,
		hllCommands,
		streamCommands,
		xreadCommands,
		xgroupCommands,
		xreadgroupCommands,
		pendingCommands,
		xinfoCommands,
		pubsubCommands,
		scriptingCommands,
		functionCommands,
		settingCommands,
		popCommands,
		internalCommands,
		waitCommands,
		featureCommands,
		userCommands,
	}
}

// Table is an index over the rows. It does not change after NewTable and may
// be read by any goroutine.
type Table struct {
	rows  []*Command
	index map[string]*Command
}

// NewTable builds the index over all families. It panics on a duplicate name:
// that is a mistake in the program, found by any test.
func NewTable() *Table {
	t := &Table{index: make(map[string]*Command)}
	for _, family := range families() {
		for i := range family {
			cmd := family[i] // a copy: the rows above stay constant
			cmd.Sub = slices.Clone(cmd.Sub)
			t.add(&cmd)
		}
	}
	sort.Slice(t.rows, func(i, j int) bool { return t.rows[i].Name < t.rows[j].Name })
	for i, cmd := range t.rows {
		cmd.id = i
	}
	return t
}

func (t *Table) add(cmd *Command) {
	if cmd.Name != strings.ToLower(cmd.Name) || t.index[cmd.Name] != nil {
		panic(fmt.Sprintf("fsm: command %q is not lower case or stands in the table twice", cmd.Name))
	}
	cmd.IndexSub()
	if cmd.Flags&Write != 0 {
		cmd.limit()
	}
	for i := range cmd.Sub {
		if cmd.Sub[i].Flags&Write != 0 {
			cmd.Sub[i].limit()
		}
	}
	t.index[cmd.Name] = cmd
	t.rows = append(t.rows, cmd)
}

// MaxKeyBytes bounds a key that can be written: with MaxStringBytes it keeps one
// key and its value within what a snapshot's reader accepts. Redis allows what
// it allows a value.
const MaxKeyBytes = 512 << 10

// limit makes a write command refuse keys and values that are too long.
func (cmd *Command) limit() {
	run := cmd.Run
	cmd.Run = func(c *Ctx, args [][]byte) Reply {
		if len(args) > MaxArguments {
			return Error(msgArguments)
		}
		for i, arg := range args {
			if len(arg) > MaxKeyBytes && (len(arg) > MaxStringBytes || slices.Contains(cmd.KeyPositions(args), i)) {
				return Error(msgTooLong)
			}
		}
		return run(c, args)
	}
}

// IndexSub prepares FindSub; tables call it once for each row.
func (cmd *Command) IndexSub() {
	if len(cmd.Sub) == 0 {
		return
	}
	cmd.sub = make(map[string]*Command, len(cmd.Sub))
	for i := range cmd.Sub {
		cmd.sub[cmd.Sub[i].Name] = &cmd.Sub[i]
	}
}

// Rows returns all rows, sorted by name. The slice must not be changed.
func (t *Table) Rows() []*Command { return t.rows }

// Find returns the row for a name in any case, or nil.
func (t *Table) Find(name []byte) *Command {
	if cmd := t.index[string(name)]; cmd != nil {
		return cmd
	}
	var low [32]byte
	if len(name) > len(low) {
		return nil
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	return t.index[string(low[:len(name)])]
}

// FindSub returns the row of a container's subcommand in any case, or nil.
func (cmd *Command) FindSub(name []byte) *Command {
	return cmd.sub[strings.ToLower(string(name))]
}

// Routed returns the row that says how a call is to be routed: that of the
// subcommand, for a container.
func (cmd *Command) Routed(args [][]byte) *Command {
	if cmd.sub != nil && len(args) > 1 {
		if sub := cmd.FindSub(args[1]); sub != nil {
			return sub
		}
	}
	return cmd
}

// accept finds the command that args call, and says why it cannot be run.
func (t *Table) accept(args [][]byte, readOnly bool) (*Command, error) {
	cmd := t.Find(args[0])
	switch {
	case cmd == nil:
		return nil, fmt.Errorf("command %q: %w", args[0], ErrVersion)
	case !cmd.ArityOK(len(args)):
		return nil, fmt.Errorf("command %q with %d arguments: %w", args[0], len(args)-1, ErrFormat)
	case readOnly && cmd.Routed(args).IsWrite():
		return nil, fmt.Errorf("command %q in a read: %w", args[0], ErrFormat)
	}
	return cmd, nil
}

// Check reads the bytes of a group that a peer sent and says whether they can
// be run: as a read if readOnly, else through the log. Only what passed here
// may be proposed; a machine that meets anything else must stop.
func (t *Table) Check(body []byte, readOnly bool) error {
	return t.CheckAt(MaxFeatures, body, readOnly)
}

// CheckAt is Check for a cluster of a feature version: it refuses commands that
// the feature version does not include, because members with an older program
// would stop at them.
func (t *Table) CheckAt(features int, body []byte, readOnly bool) error {
	var r groupReader
	if err := r.open(body); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	marked := body[0]&groupScript != 0
	for total := uint64(0); len(r.d.b) > 0; {
		n := uint64(1)
		switch op := r.d.byte(); op {
		case opCommand:
		case opTransaction:
			for watches := r.d.uvarint(); watches > 0 && r.d.err == nil; watches-- {
				if db := r.d.uvarint(); db >= Databases {
					return fmt.Errorf("watch in db %d: %w", db, ErrFormat)
				}
				r.d.bytes()
				r.d.uvarint()
			}
			n = r.d.uvarint()
		default:
			return fmt.Errorf("operation kind %d: %w", op, ErrVersion)
		}
		if total += n; total > MaxOps {
			return fmt.Errorf("group of more than %d operations: %w", MaxOps, ErrFormat)
		}
		if n > uint64(len(r.d.b)) {
			return fmt.Errorf("transaction of %d commands: %w", n, ErrFormat)
		}
		for ; n > 0; n-- {
			_, args, err := r.command()
			if err != nil {
				return fmt.Errorf("command: %w", err)
			}
			cmd, err := t.accept(args, readOnly)
			if err != nil {
				return err
			}
			if cmd.Needs(args) > features {
				return fmt.Errorf("%s: %w", NeedsFeature(cmd, args, features), ErrVersion)
			}
			if !marked && cmd.Routed(args).interpreted(args) {
				return fmt.Errorf("script in a group without the mark: %w", ErrFormat)
			}
		}
	}
	return r.d.err
}
