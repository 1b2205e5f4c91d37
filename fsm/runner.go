package fsm

// ScriptRunner interprets scripts for a leader, and for read-only scripts on the
// node that reads. Its methods are called from several goroutines at a time.
type ScriptRunner interface {
	// CompileScript says whether a script can be run: "" if it can, else Redis'
	// error text with its code ("ERR Error compiling script (new function): …").
	// EVAL asks it before every run: the answer ought to be kept.
	CompileScript(body []byte) string
	// RunScript runs a script whose commands go through call.Do. It ends within
	// its budget, whatever the script does. An error that ends the script is the
	// reply, by Error, with the tail that Redis gives it (" script: <sha>, on
	// @user_script:<line>."): then nothing of what the script wrote stays. An error
	// that it returns as its value is ErrorResult: what it wrote stays.
	RunScript(call ScriptCall) Reply
}

// ScriptGuard is implemented by runners that know the rules of users.
type ScriptGuard interface {
	// Forbids says why a user may not run a command that a script calls: "" if it
	// may, else Redis' error text, without the tail. users are those of the state
	// on which the script runs.
	Forbids(users *Users, user string, args [][]byte) string
}

// ScriptRules is implemented by runners whose clients may not do everything that the
// machine can, whoever they are.
type ScriptRules interface {
	// Refuses says why no script may call a command, "" if it may: Redis' error text,
	// without the tail. cmd is nil for commands of the connection, such as SELECT.
	Refuses(cmd *Command, args [][]byte) string
}

// ScriptCall is one call of a script.
type ScriptCall struct {
	SHA        string // of Body: 40 lower-case hexadecimal digits
	Body       []byte // as the client sent it, first line included
	Keys, Args [][]byte
	ReadOnly   bool   // EVAL_RO, EVALSHA_RO, a function with no-writes: Do refuses what writes
	Proto      int    // RESP version of the client: 2 or 3
	Seed       uint64 // for math.random: another one each call
	// Do runs one command of the script and returns its reply. Names, arity,
	// permissions and what a read-only script may do are checked by it: an error
	// reply has Redis' text, without the tail that redis.call puts behind it. It
	// keeps nothing of args.
	Do func(args [][]byte) Reply
	// SetProto is redis.setresp: the RESP version, 2 at first, that decides the
	// shape of what Do answers (ZRANGE WITHSCORES has pairs in 3).
	SetProto func(proto int)
	// SetReadOnly is the flag no-writes of a script's first line: from then on Do
	// refuses what writes.
	SetReadOnly func()
	// Permits answers redis.acl_check_cmd: whether the command is known, and
	// whether the caller of the script may run it. Without it, all is permitted.
	Permits func(args [][]byte) (permitted, known bool)
	// Interrupt, if there is one, is asked now and then by a script that runs on
	// (every few thousand instructions, and around long library calls). A text
	// ends the script, uncatchable by pcall, with that text as its error: its time
	// is over, it was killed, its leader is none any more.
	Interrupt func() string
	// Patience is how long the script may run: see there. Who sets Interrupt
	// calls Cut if the script was ended and the caller's patience leaves open what
	// is to be answered: always in a Trial, in Briefly because of the time.
	Patience Patience
	Cut      func()

	// Function is set if Body is the code of a library: then that is run, and the
	// function called that it registers under this name. The reply's tail names it
	// in place of the SHA1. Words is the whole command, for FUNCTION STATS.
	Function string
	Words    [][]byte
	// Register is set in place of Function for a library that is new: it is told of
	// each function that the code registers, and may refuse it. What there is in
	// functions is not there while the code runs, redis.call above all. An error is
	// FUNCTION LOAD's, with its code.
	Register func(f Function) (refusal string)
	// Begun, if there is one, is shared by the calls of one command, which have
	// their time together. It is the runner's to fill in.
	Begun *int64
	// Group is the same for the calls of a group in a rehearsal: each has its own
	// time, and all of them have a bound.
	Group *int64
}

// RunningScripts are the scripts and functions that run on a node.
type RunningScripts interface {
	// Kill ends the function that has been running longest, or, if function is not
	// set, the script that is none.
	Kill(function bool) KillResult
	// Function tells of the function that has been running longest, nil if none is.
	Function() *RunningFunction
}

// KillResult says what RunningScripts has ended.
type KillResult int

// The results.
const (
	Killed  KillResult = iota
	NotBusy            // nothing runs
	Other              // what runs is not of that kind
)

// RunningFunction is what FUNCTION STATS says of a function.
type RunningFunction struct {
	Name    string
	Command []string
	Millis  int64 // since it began
}
