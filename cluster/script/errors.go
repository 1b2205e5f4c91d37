package script

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
)

// Why a run was cut off; Run's error wraps one of them.
var (
	// ErrSteps: the script did more work than Limits.Steps.
	ErrSteps = lua.ErrSteps
	// ErrMemory: the script created more bytes than Limits.Memory.
	ErrMemory = lua.ErrMemory
	// ErrTime: the script ran longer than Limits.Time.
	ErrTime = lua.ErrTime
	// ErrKilled: Call.Stop was closed.
	ErrKilled = lua.ErrKilled
	// ErrPanic: the interpreter or Do failed; the *Abort holds the stack.
	ErrPanic = lua.ErrPanic
)

// Abort is the error of a run that was cut off.
type Abort = lua.Abort

// Errors of Compile. Their texts are error replies.
var (
	errTooLarge     = errors.New("ERR script is larger than 65536 bytes")
	errShebang      = errors.New("ERR Invalid script shebang")
	errCompileStart = "ERR Error compiling script (new function): "
)
