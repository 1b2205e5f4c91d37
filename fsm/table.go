package fsm

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Flags say what a command does, how a node routes it, and on which connections
// it may run. Commands on data and commands about the connection use the same
// flags.
type Flags uint64

const (
	// Write commands change the state and go through the log.
	Write Flags = 1 << iota
	// Fast commands are O(1) or O(log n).
	Fast
	// DenyOOM commands can make the data set grow.
	DenyOOM
	// NoScript commands must not be called from a script.
	NoScript
	// Global commands read, empty or exchange whole databases. Those that write
	// are not refused for the work that they need: see dividing.divide.
	Global
	// Slow reads may take long, for example because they visit many keys. Those
	// that do take long run on a clone, so that they do not delay the log.
	Slow
	// Dangerous commands are in Redis' category @dangerous.
	Dangerous
	// KeyspaceCat commands are in the category @keyspace.
	KeyspaceCat
	// VariableFlags commands access their keys in different ways, depending on
	// their options.
	VariableFlags
	// MovableKeys commands have key positions that depend on the arguments.
	MovableKeys
	// Internal commands are for the nodes. Clients cannot call them.
	Internal
	// MayWrite commands are routed as writes because they may publish a message,
	// run a script that writes, or change something other than keys. COMMAND
	// does not list them as writes.
	MayWrite
	// ReadOnly commands read keys and change none. A command that clients can
	// call and that has none of the flags Write, MayWrite and ReadOnly (TIME,
	// PING) does not access keys.
	ReadOnly
	// Scripted commands contain or name a script that may need the interpreter:
	// see script.go.
	Scripted
	// The other flags describe a command to clients, in COMMAND, as in Redis.
	// Some of them have other effects too. For example, Admin, PubSub and Blocking
	// determine ACL categories, and a Blocking command may leave a waiter (see
	// Table.Waits).
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

// These flags are for commands that a connection executes itself. COMMAND does
// not show them.
const (
	// RunsInMulti commands run at once inside MULTI. The connection queues or
	// refuses all other commands.
	RunsInMulti Flags = 1 << (32 + iota)
	// RefusedInMulti commands are refused inside MULTI, like those with NoMulti,
	// but Redis does not list them with the flag no_multi.
	RefusedInMulti
	// Subscribed commands may run on a RESP2 connection that has subscriptions.
	Subscribed
	// AlwaysAnswers commands send their reply even if CLIENT REPLY has turned
	// replies off.
	AlwaysAnswers
	// PreviousProtocol commands are answered in the RESP version that the
	// connection had before them. EXEC has this flag, because HELLO in the
	// transaction may change the version. HELLO itself is answered in the new
	// version.
	PreviousProtocol
	// KeepsCaching commands do not end the effect of CLIENT CACHING. The next
	// command without this flag ends it. If a container has the flag, its
	// subcommands have it too.
	KeepsCaching
	// NotPaused commands run during CLIENT PAUSE.
	NotPaused
	// Hidden commands only explain why the server does not support them. COMMAND
	// does not list them.
	Hidden
)

// Keys are the positions of the keys among the arguments. The name of the
// command is at position 0. A negative Last counts from the end. The zero value
// is for a command without keys.
type Keys struct{ First, Last, Step int }

// end returns the end of the range of positions in a command with n arguments.
func (k Keys) end(n int) int {
	last := k.Last
	if last < 0 {
		last += n
	}
	return min(last+1, n)
}

// has reports whether the argument at a position of a command with n arguments is a
// key.
func (k Keys) has(pos, n int) bool {
	return k.First > 0 && pos >= k.First && pos < k.end(n) && (pos-k.First)%k.Step == 0
}

// KeysAt returns the positions from first to last, step by step.
func KeysAt(first, last, step int) Keys { return Keys{first, last, step} }

// Access says what a command does with its keys. Mode ("RO", "RW", "OW" or
// "RM") and Flags have the form of the key specs of COMMAND INFO.
type Access struct {
	Mode  string
	Flags string // separated by spaces: access, update, insert, delete, …
	Notes string
}

// KeySpec is the access to some of a command's keys, for commands that access
// their keys differently (RENAME).
type KeySpec struct {
	Keys   Keys
	Access Access
	// NumKeys: the argument at Keys.First is the number of the keys after it.
	NumKeys bool
	// Keyword, unless empty, is an argument before the keys, at some position
	// from Keys.First on. The first 1/Part of the arguments after the keyword
	// are the keys.
	Keyword string
	Part    int
	// Unknown: the positions of the keys do not follow from the arguments
	// alone.
	Unknown bool
}

// Change is a change of a command in a version of Redis.
type Change struct{ Since, What string }

// Command is one row of the command table, with all properties of a command.
type Command struct {
	Name   string // lower case
	Arity  int    // as in Redis: includes the name; negative means "at least"
	Flags  Flags
	Keys   Keys
	Access Access
	// Specs replace Access for commands that access their keys differently.
	Specs []KeySpec
	// KeysOf returns the positions of the keys for commands with MovableKeys,
	// and nil if the arguments are invalid.
	KeysOf func(args [][]byte) []int
	// KeyPattern is for commands that may read values of keys that are not
	// among their arguments. It returns the option, or the name of the command,
	// that makes the call read such values. It returns "" if the call reads
	// none. A call that reads such values requires a user with access to all
	// keys. A Redis Cluster does not allow SORT with an option that reads them.
	// KeyPattern is nil for commands that never read such values.
	KeyPattern func(args [][]byte) (option string)
	Group      string // family, as COMMAND DOCS names it: string, generic, …
	Since      string // first Redis version that has the command, "valkey 9.0" or "holdfast"
	Required
	Complexity string
	Syntax     string // arguments, as in the Redis documentation
	Doc        string // one sentence
	// Categories are the ACL categories that flags and group do not imply,
	// without the @.
	Categories []string
	Tips       []string // hints for proxies and cluster clients, in Redis' words
	History    []Change
	// DeprecatedSince and ReplacedBy are set for commands that new programs
	// should not use.
	DeprecatedSince, ReplacedBy string
	// Run executes the command. args[0] is the name. The slices belong to the
	// entry, so Run must copy what it keeps. If Run is nil, the table sets it to
	// runSub.
	Run func(c *Ctx, args [][]byte) Reply
	// Sub contains the rows of a container's subcommands (OBJECT ENCODING).
	Sub []Command

	// AccessOf returns the access of a call, for commands with VariableFlags.
	// It is nil for other commands. If AccessOf is set, Access is the widest
	// access that a call may have.
	AccessOf func(args [][]byte) Access

	// Wait has the hooks of a command with the flag Blocking.
	Wait WaitHooks
	// Work has the hooks that estimate the work of a call.
	Work WorkHooks

	sub map[string]*Command
}

// Required says which feature version of the cluster a command needs: see
// feature.go.
type Required struct {
	// Feature is the first feature version with this command. It is 0 for commands
	// that all supported programs know.
	Feature int
	// FeatureOf returns the feature version that the options of a call need. It is
	// nil for commands without such options. Nodes refuse a client's call if the
	// cluster has a lower feature version. Older programs may still log such a
	// call. So below the feature version that FeatureOf returns, Run must answer
	// the call as the older programs do.
	FeatureOf func(args [][]byte) int
}

// WaitHooks are the hooks of a command that may wait.
type WaitHooks struct {
	// Block decodes the arguments of a command that may wait (flag Blocking).
	Block func(args [][]byte) (b BlockingCall, fail Reply)
	// Logged is for a command with the flag Blocking and without Write. It is
	// the name of the internal command that runs those calls that may wait.
	Logged string
	// MayWait reports whether a call of a command with the flag Blocking may
	// wait. It is nil if all calls may.
	MayWait func(args [][]byte) bool
}

// WorkHooks are the hooks that estimate the work of a call of a command.
type WorkHooks struct {
	// Steps estimates the work of a command in the log, as far as it depends on
	// the values of the command's keys. Steps is nil if the work depends on the
	// arguments alone. It is also nil for costly reads (see Costly), and for
	// commands that take a bounded number of steps or bytes for each argument.
	Steps WorkFunc
	// Depends reports whether the work of a call depends on the values of its
	// keys. The work of a call with the smallest number of arguments must not
	// depend on them. Depends is nil if the work of every call depends on them.
	Depends func(args [][]byte) bool
	// Stores reports that Steps includes the cost of storing the bytes of the
	// arguments.
	Stores bool
	// Call is the number of steps of a call with two arguments, its name and one
	// more. It is 0 for the usual number: see callSteps.
	Call int
	// PerArgument is the number of steps for each further argument. It is 0 for
	// StepsPerKey, and StepsPut from the argument fewArguments on.
	PerArgument int
}

// IsWrite reports whether the command has to go through the log.
func (cmd *Command) IsWrite() bool { return cmd.Flags&(Write|MayWrite) != 0 }

// ArityOK reports whether n arguments, including the name, are acceptable.
func (cmd *Command) ArityOK(n int) bool {
	if cmd.Arity >= 0 {
		return n == cmd.Arity
	}
	return n >= -cmd.Arity
}

// KeyPositions returns the positions of the keys in args, and nil if there are
// none or the arguments are invalid.
func (cmd *Command) KeyPositions(args [][]byte) []int {
	if cmd.KeysOf != nil {
		return cmd.KeysOf(args)
	}
	if cmd.Keys.First == 0 {
		return nil
	}
	var pos []int
	for i := cmd.Keys.First; i < cmd.Keys.end(len(args)); i += cmd.Keys.Step {
		pos = append(pos, i)
	}
	return pos
}

// ownFamilies returns the families of commands that belong to the state machine
// itself. Package command has the others.
func ownFamilies() [][]Command {
	return [][]Command{
		pubsubCommands,
		scriptingCommands,
		functionCommands,
		settingCommands,
		internalCommands,
		waitCommands,
		featureCommands,
		restoreCommands,
		userCommands,
	}
}

// Table is an index over the rows. It does not change after NewTable, so any
// goroutine may read it.
type Table struct {
	rows  []*Command
	index map[string]*Command
}

// NewTable builds the index over the given families and those of the state
// machine itself. It panics if a row is invalid, or if two rows have the same
// name. Such a mistake in the program would fail every test.
func NewTable(families ...[]Command) *Table {
	t := &Table{index: make(map[string]*Command)}
	for _, family := range append(families, ownFamilies()...) {
		for i := range family {
			cmd := family[i] // a copy: the rows themselves stay constant
			cmd.Sub = slices.Clone(cmd.Sub)
			t.add(&cmd)
		}
	}
	sort.Slice(t.rows, func(i, j int) bool { return t.rows[i].Name < t.rows[j].Name })
	return t
}

func (t *Table) add(cmd *Command) {
	if cmd.Name != strings.ToLower(cmd.Name) || t.index[cmd.Name] != nil {
		panic(fmt.Sprintf("fsm: command %q is not lower case or is a duplicate", cmd.Name))
	}
	cmd.IndexSub()
	if cmd.Run == nil {
		cmd.Run = cmd.runSub
	}
	if cmd.Flags&Write != 0 {
		cmd.limit()
	}
	for i := range cmd.Sub {
		if cmd.Sub[i].Flags&Write != 0 {
			cmd.Sub[i].limit()
		}
	}
	if (cmd.AccessOf != nil) != (cmd.Flags&VariableFlags != 0) {
		panic(fmt.Sprintf("fsm: command %q needs both VariableFlags and AccessOf", cmd.Name))
	}
	t.index[cmd.Name] = cmd
	t.rows = append(t.rows, cmd)
}

// IndexSub prepares FindSub. Tables call it once for each row.
func (cmd *Command) IndexSub() {
	if len(cmd.Sub) == 0 {
		return
	}
	cmd.sub = make(map[string]*Command, len(cmd.Sub))
	for i := range cmd.Sub {
		cmd.sub[cmd.Sub[i].Name] = &cmd.Sub[i]
	}
}

// Rows returns all rows, sorted by name. The caller must not change the slice.
func (t *Table) Rows() []*Command { return t.rows }

// Find returns the row of a name, which may be in any mix of cases. It returns nil
// if there is none.
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

// IsWord reports whether an argument equals a word, in any mix of cases. word
// must be in upper case.
func IsWord(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, b := range arg {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

// FindSub returns the row of a container's subcommand, whose name may be in any
// mix of cases. It returns nil if there is none. It allocates nothing for names
// in ASCII.
func (cmd *Command) FindSub(name []byte) *Command {
	for i := range cmd.Sub {
		if sub := &cmd.Sub[i]; isName(name, sub.Name) {
			return sub
		}
	}
	for _, b := range name {
		if b >= utf8.RuneSelf { // some letters outside of ASCII have a lower case in ASCII
			return cmd.sub[strings.ToLower(string(name))]
		}
	}
	return nil
}

// isName reports whether an argument in ASCII equals a name, in any mix of cases. name
// must be in lower case.
func isName(arg []byte, name string) bool {
	if len(arg) != len(name) {
		return false
	}
	for i, b := range arg {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != name[i] {
			return false
		}
	}
	return true
}

// Routed returns the row that determines how a call is routed: for a container,
// that of the subcommand.
func (cmd *Command) Routed(args [][]byte) *Command {
	if cmd.sub != nil && len(args) > 1 {
		if sub := cmd.FindSub(args[1]); sub != nil {
			return sub
		}
	}
	return cmd
}

// Waits returns the command table row with which to run a call of a blocking
// command. It returns nil if the call never waits, such as XREAD without BLOCK.
func (t *Table) Waits(cmd *Command, args [][]byte) *Command {
	switch row := cmd.Routed(args); {
	case row.Flags&Blocking == 0, row.Wait.MayWait != nil && !row.Wait.MayWait(args):
		return nil
	case row.Wait.Logged != "":
		return t.index[row.Wait.Logged]
	}
	return cmd
}

// accept returns the command that args call, and an error if it cannot be
// executed.
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

// Check returns an error if a machine cannot execute the bytes of a group. If
// readOnly is set, the group must be executable as a read, and otherwise
// through the log. Only a group that Check has accepted may be proposed,
// because a machine that cannot execute a group stops.
func (t *Table) Check(body []byte, readOnly bool) error {
	return t.CheckAt(MaxFeatures, body, readOnly)
}

// CheckAt is like Check, for a cluster with the given feature version. It refuses
// commands that this version does not include, because members with an older
// program would stop at them.
func (t *Table) CheckAt(features int, body []byte, readOnly bool) error {
	var r groupReader
	if err := r.open(body); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	marked := body[0]&groupScript != 0
	for total := uint64(0); len(r.d.Rest) > 0; {
		n := uint64(1)
		switch op := r.d.Byte(); op {
		case opCommand:
		case opTransaction:
			for watches := r.d.Uvarint(); watches > 0 && r.d.Err == nil; watches-- {
				if db := r.d.Uvarint(); db >= Databases {
					return fmt.Errorf("watch in db %d: %w", db, ErrFormat)
				}
				r.d.Bytes()
				r.d.Uvarint()
			}
			n = r.d.Uvarint()
		default:
			return fmt.Errorf("operation kind %d: %w", op, ErrVersion)
		}
		if total += n; total > MaxOps {
			return fmt.Errorf("group of more than %d operations: %w", MaxOps, ErrFormat)
		}
		if n > uint64(len(r.d.Rest)) {
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
			if need := cmd.exists(args); need > features {
				return fmt.Errorf("%s: %w", NeedsFeature(cmd, args, need, features), ErrVersion)
			}
			if !marked && cmd.Routed(args).interpreted(args) {
				return fmt.Errorf("script in a group that is not marked as containing scripts: %w", ErrFormat)
			}
		}
	}
	return r.d.Err
}

// named is a flag, and its name in COMMAND INFO or the name of its ACL category.
type named struct {
	flag Flags
	name string
}

// flagNames are in the order in which Redis prints them.
var flagNames = []named{
	{Write, "write"},
	{ReadOnly, "readonly"},
	{DenyOOM, "denyoom"},
	{Admin, "admin"},
	{PubSub, "pubsub"},
	{NoScript, "noscript"},
	{Blocking, "blocking"},
	{Loading, "loading"},
	{Stale, "stale"},
	{SkipMonitor, "skip_monitor"},
	{SkipSlowlog, "skip_slowlog"},
	{Asking, "asking"},
	{Fast, "fast"},
	{NoAuth, "no_auth"},
	{NoMandatoryKeys, "no_mandatory_keys"},
	{NoAsyncLoading, "no_async_loading"},
	{NoMulti, "no_multi"},
	{MovableKeys, "movablekeys"},
	{AllowBusy, "allow_busy"},
}

// FlagNames returns the flags as COMMAND INFO prints them.
func (cmd *Command) FlagNames() []string {
	var names []string
	for _, f := range flagNames {
		if cmd.Flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// categoryOrder is the order in which Redis prints ACL categories.
var categoryOrder = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
	"stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// groupCategories are the command groups that are ACL categories too.
var groupCategories = map[string]string{
	"string": "string", "bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "list": "list",
	"set": "set", "sorted-set": "sortedset", "hash": "hash", "stream": "stream", "scripting": "scripting",
}

// ACLCategories returns the ACL categories as COMMAND INFO prints them, with
// the @. Flags imply most of them. A container such as OBJECT has only the
// category of its speed. Its subcommands have the other categories.
func (cmd *Command) ACLCategories() []string {
	has := make(map[string]bool)
	for _, c := range cmd.Categories {
		has[c] = true
	}
	if len(cmd.Sub) == 0 {
		has[groupCategories[cmd.Group]] = true
	}
	for _, f := range []named{
		{Write, "write"}, {ReadOnly, "read"}, {KeyspaceCat, "keyspace"}, {Dangerous, "dangerous"},
		{Admin, "admin"}, {Admin, "dangerous"}, {PubSub, "pubsub"}, {Blocking, "blocking"}, {Fast, "fast"},
	} {
		if cmd.Flags&f.flag != 0 {
			has[f.name] = true
		}
	}
	has["slow"] = cmd.Flags&Fast == 0
	if cmd.Group == "scripting" {
		has["read"] = false // a script does not count as a read, even a read-only one
	}
	var out []string
	for _, c := range categoryOrder {
		if has[c] {
			out = append(out, "@"+c)
		}
	}
	return out
}

// KeySpecs returns the key specs that COMMAND INFO prints. Commands without keys,
// and commands whose only key positions are those of KeysOf, have no key specs.
func (cmd *Command) KeySpecs() []KeySpec {
	switch {
	case cmd.Specs != nil:
		return slices.Clone(cmd.Specs)
	case cmd.Keys.First == 0:
		return nil
	}
	return []KeySpec{{Keys: cmd.Keys, Access: cmd.Access}}
}

// AccessAt returns the access of the command to the key at a position of args.
// The name is at position 0. AccessAt takes the same time for any number of keys,
// because callers call it for each key of a command.
func (cmd *Command) AccessAt(args [][]byte, pos int) Access {
	if cmd.AccessOf != nil {
		return cmd.AccessOf(args)
	}
	if cmd.Specs == nil {
		return cmd.Access
	}
	for _, k := range cmd.Specs {
		if k.Unknown {
			continue
		}
		if k.NumKeys {
			if pos > k.Keys.First {
				return k.Access
			}
			continue
		}
		if k.Keys.has(pos, len(args)) {
			return k.Access
		}
	}
	return cmd.Access
}

// runSub runs the subcommand of a container command.
func (cmd *Command) runSub(c *Ctx, args [][]byte) Reply {
	sub := cmd.FindSub(args[1])
	switch {
	case sub == nil:
		return Error(UnknownSubcommand(args[1], strings.ToUpper(cmd.Name)))
	case !sub.ArityOK(len(args)):
		return Error(WrongArity(cmd.Name + "|" + sub.Name))
	}
	return sub.Run(c, args)
}

// WrongSubcommand returns the error for options that a subcommand does not
// have.
func WrongSubcommand(args [][]byte) Reply {
	return Error("ERR unknown subcommand or wrong number of arguments for '" + clip(args[1], 128) + "'. Try " +
		strings.ToUpper(string(args[0])) + " HELP.")
}

// Help returns the reply to the HELP subcommand of a container command.
func Help(container string, lines ...string) Reply {
	replies := []Reply{Simple(container + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")}
	for _, line := range append(lines, "HELP", "    Prints this help.") {
		replies = append(replies, Simple(line))
	}
	return Array(replies)
}
