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

// ScriptCall is one call of a script.
type ScriptCall struct {
	SHA        string // 40 lower-case hexadecimal digits
	Body       []byte // as the client sent it, shebang line included
	Keys, Args [][]byte
	ReadOnly   bool   // EVAL_RO, EVALSHA_RO: Do refuses what writes
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
}
