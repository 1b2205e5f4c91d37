package resp

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// These are Redis' error texts, which clients compare. Only msgThrottled is not
// an error of Redis.
const (
	msgNoAuth      = "NOAUTH Authentication required."
	msgWrongPass   = "WRONGPASS invalid username-password pair or user is disabled."
	msgThrottled   = "ERR too many failed logins from this address, try again later"
	msgNoProto     = "NOPROTO unsupported protocol version"
	msgSyntax      = "ERR syntax error"
	msgNotInt      = "ERR value is not an integer or out of range"
	msgDBIndex     = "ERR DB index is out of range"
	msgNestedMulti = "ERR MULTI calls can not be nested"
	msgNoMulti     = "ERR Command not allowed inside a transaction"
	msgNoMultiExec = "ERR EXEC without MULTI"
	msgNoMultiDisc = "ERR DISCARD without MULTI"
	msgWatchMulti  = "ERR WATCH inside MULTI is not allowed"
	msgExecAbort   = "EXECABORT Transaction discarded because of previous errors."
	msgNoPassSet   = "ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?"
	msgShardMulti  = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
	msgNoCluster   = "ERR This instance has cluster support disabled"
	msgClusterDown = "CLUSTERDOWN The cluster is down"
	msgCrossSlot   = "CROSSSLOT Keys in request don't hash to the same slot"
)

// msgWrongSubcommand returns Redis' error for a container command whose subcommand
// is unknown or has the wrong number of arguments.
func msgWrongSubcommand(container string, sub []byte) string {
	return "ERR unknown subcommand or wrong number of arguments for '" + string(sub) + "'. Try " + container + " HELP."
}

// errorText returns the error reply for an error of the cluster. A code after
// which clients repeat the command (CLUSTERDOWN, LOADING, TRYAGAIN, READONLY,
// MASTERDOWN, MOVED) may be used only for a command that was certainly not
// executed. The function that creates the error decides whether this is certain,
// by the type of the error: see outcome.Error.
func errorText(err error) string {
	if o := (*outcome.Error)(nil); errors.As(err, &o) {
		switch known := outcome.Of(err); {
		case known == outcome.Unknown && o.Advice() != "":
			return "UNKNOWN " + o.Reason() + "; " + o.Advice()
		case known == outcome.Unknown:
			return "UNKNOWN outcome of the command is unknown, read the key before you try again"
		case known == outcome.Executed:
			return "UNKNOWN the command was executed, but " + o.Reason()
		case o.Retryable():
			return "CLUSTERDOWN " + o.Reason() + ", the command was not executed"
		}
	}
	var refused refusedError
	if errors.As(err, &refused) {
		return refused.Error() // the text contains its own error code
	}
	return "ERR " + err.Error()
}
