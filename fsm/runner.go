package fsm

// ScriptRunner interprets scripts: for the leader, and for read-only scripts on
// the node that executes the read. Several goroutines may call its methods at
// the same time.
type ScriptRunner interface {
	// CompileScript returns "" if a script can be executed, and otherwise
	// Redis' error text with its code ("ERR Error compiling script (new
	// function): …"). EVAL calls it before every execution, so an
	// implementation should cache the answer.
	CompileScript(body []byte) string
	// RunScript executes a script, whose commands go through call.Do. It must
	// return within its budget, whatever the script does. If an error ends the
	// script, the reply is an Error with the tail that Redis adds (" script:
	// <sha>, on @user_script:<line>."), and the writes of the script are rolled
	// back. If the script returns an error as its value, the reply is an
	// ErrorResult, and the writes stay.
	RunScript(call ScriptCall) Reply
}

// ScriptGuard is implemented by runners that know the rules of users.
type ScriptGuard interface {
	// Forbids returns "" if a user may run a command that a script calls, and
	// otherwise Redis' error text, without the tail. users belongs to the state
	// on which the script runs.
	Forbids(users *Users, user string, args [][]byte) string
}

// ScriptRules is implemented by runners that refuse some commands of the
// machine to all clients, whatever the user.
type ScriptRules interface {
	// Refuses returns "" if scripts may call a command, and otherwise Redis'
	// error text, without the tail. cmd is nil for commands of the connection,
	// such as SELECT.
	Refuses(cmd *Command, args [][]byte) string
}

// ScriptCall is one call of a script.
type ScriptCall struct {
	SHA        string // SHA1 of Body: 40 lower-case hexadecimal digits
	Body       []byte // as the client sent it, including the first line
	Keys, Args [][]byte
	ReadOnly   bool   // EVAL_RO, EVALSHA_RO, a function with no-writes: Do refuses writes
	Proto      int    // RESP version of the client: 2 or 3
	Origin     uint64 // connection of the client: see Group.Reset
	User       string // user whose rules apply, "" for none
	Seed       uint64 // for math.random; differs in each call
	// Do executes one command of the script and returns its reply. It checks
	// name, arity, permissions and whether the script may write. An error reply
	// has Redis' text, without the tail that redis.call appends. Do keeps
	// nothing of args.
	Do func(args [][]byte) Reply
	// SetProto implements redis.setresp. It sets the RESP version, initially 2,
	// which decides the shape of the replies of Do (ZRANGE WITHSCORES has pairs
	// in 3).
	SetProto func(proto int)
	// SetReadOnly implements the flag no-writes of a script's first line: Do
	// refuses writes from then on.
	SetReadOnly func()
	// Permits implements redis.acl_check_cmd: it reports whether the command is
	// known, and whether the caller of the script may run it. If it is nil,
	// everything is permitted.
	Permits func(args [][]byte) (permitted, known bool)
	// Interrupt, unless nil, is called regularly while a script runs: every few
	// thousand instructions, and around long library calls. A text ends the
	// script with that text as its error, which pcall cannot catch. Reasons are
	// that the time of the script is over, that it was killed, or that its
	// leader was deposed.
	Interrupt func() string
	// ScriptBudget says how long the script may run. The code that sets
	// Interrupt must call Cut when it has ended the script and the budget
	// leaves the reply open: with DryRun in any case, and with Briefly if the
	// time was over.
	ScriptBudget ScriptBudget
	Cut          func()

	// Function is set if Body is the code of a library. The runner then
	// executes the code, and calls the function that the code registers under
	// this name. The tail of errors names the function in place of the SHA1.
	// Command is the whole command, for FUNCTION STATS.
	Function string
	Command  [][]byte
	// Register is set, in place of Function, if a library is loaded. The runner
	// calls it for each function that the code registers; it may refuse the
	// function. While the code runs, redis.call and whatever else only
	// functions may use is missing. An error in the code is returned as the
	// error of FUNCTION LOAD, with its code.
	Register func(f Function) (refusal string)
	// Begun, unless nil, is shared by the calls of one command, which share one
	// time limit. The runner sets it.
	Begun *int64
	// Group, unless nil, is shared by the calls of a group in a speculative
	// execution. Each call has its own time limit, and the group has one for
	// all its calls.
	Group *int64
}

// RunningScripts are the scripts and functions that run on a node.
type RunningScripts interface {
	// Kill ends the function that has been running longest, or, if function is
	// false, the running script.
	Kill(function bool) KillResult
	// Function returns the function that has been running longest, nil if none
	// is running.
	Function() *RunningFunction
}

// KillResult is the result of RunningScripts.Kill.
type KillResult int

// These are the results of RunningScripts.Kill.
const (
	Killed  KillResult = iota
	NotBusy            // nothing is running
	Other              // what is running is of the other kind
)

// RunningFunction describes a running function, for FUNCTION STATS.
type RunningFunction struct {
	Name    string
	Command []string
	Millis  int64 // since the start
}
