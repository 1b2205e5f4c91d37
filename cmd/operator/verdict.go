package operator

import (
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// exitCode returns the exit code of status.
func exitCode(v verdict.Verdict) terminal.ExitCode {
	switch v.State {
	case verdict.NoLeader:
		return exitNoLeader
	case verdict.Degraded:
		return exitDegraded
	}
	return 0
}
