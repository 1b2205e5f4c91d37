package command

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// These are exactly the error texts of Redis, because clients match on them. They
// are part of the hash chain: see fsm.MsgSyntax.
const (
	msgNotFloat     = "ERR value is not a valid float"
	msgOverflow     = "ERR increment or decrement would overflow"
	msgDecrOverflow = "ERR decrement would overflow"
	msgNaN          = "ERR increment would produce NaN or Infinity"
	msgNoSuchKey    = "ERR no such key"
	msgSameObject   = "ERR source and destination objects are the same"
	msgExpireNX     = "ERR NX and XX, GT or LT options at the same time are not compatible"
	msgExpireGTLT   = "ERR GT and LT options at the same time are not compatible"
	msgNotInt32     = "ERR value is out of range, value must between -2147483648 and 2147483647"
	msgNoFrequency  = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
		"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	msgNumKeys    = "ERR invalid numkeys value"
	msgPairs      = "ERR wrong number of key-value pairs"
	msgCondition  = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
	msgCondType   = "ERR Key should be of string type if conditions are specified"
	msgInvalidCur = "ERR invalid cursor"
	msgOffset     = "ERR offset is out of range"
)

// invalidExpire returns the error reply to an invalid time to live. It prints
// name in lower case, because a script may have spelled it differently.
func invalidExpire(name string) fsm.Reply {
	return fsm.Error("ERR invalid expire time in '" + strings.ToLower(name) + "' command")
}

// lockHelpShared contains the lines of LOCK HELP from FeatureShared on. From
// FeatureHistory on, lockHelp adds the lines about LOCK HISTORY.
var lockHelpShared = []string{
	"ACQUIRE <key> <owner> PX <milliseconds> [WAIT <milliseconds>] [META <text>]",
	"        [SHARED | LIMIT <permits>]",
	"    Take the lock <key> for <owner>, and return its fencing token, or null if",
	"    another owner holds it until WAIT is over. WAIT 0 waits without a limit.",
	"    SHARED: other owners may share the lock. LIMIT: up to <permits> owners may.",
	"BREAK <key> [<token>]",
	"    Take the lock <key> away from its owner, or from all owners that share it.",
	"CHECK <key> <token>",
	"    Return 1 if <token> is the fencing token of a current grant of the lock",
	"    <key>, otherwise 0.",
	"INFO <key>",
	"    Return the owners of the lock <key>, and the clients that wait for it.",
	"LIST [MATCH <pattern>] [OWNER <text>] [WAITED] [COUNT <count>] [CURSOR <cursor>]",
	"    Iterate over the locks that LOCK ACQUIRE has taken, the longest held first.",
	"RELEASE <key> <owner> [<token>]",
	"    Release the lock <key> if <owner> holds it.",
	"RENEW <key> <owner> PX <milliseconds>",
	"    Extend the lease of the lock <key> if <owner> holds it.",
	"TOKEN <key> [<owner>]",
	"    Return the fencing token of the current grant of the lock <key>, or that of",
	"    <owner>, or null if there is none.",
}

// lockHelpBefore contains the lines of LOCK HELP below FeatureShared.
var lockHelpBefore = []string{
	"ACQUIRE <key> <owner> PX <milliseconds> [WAIT <milliseconds>] [META <text>]",
	"    Take the lock <key> for <owner>, and return its fencing token, or null if",
	"    another owner holds it until WAIT is over. WAIT 0 waits without a limit.",
	"BREAK <key> [<token>]",
	"    Take the lock <key> away from its owner.",
	"CHECK <key> <token>",
	"    Return 1 if <token> is the fencing token of the present grant of the lock",
	"    <key>, otherwise 0.",
	"INFO <key>",
	"    Return the owner of the lock <key>, and the clients that wait for it.",
	"LIST [MATCH <pattern>] [OWNER <text>] [WAITED] [COUNT <count>] [CURSOR <cursor>]",
	"    Iterate over the locks that LOCK ACQUIRE has taken, the longest held first.",
	"RELEASE <key> <owner> [<token>]",
	"    Release the lock <key> if <owner> holds it.",
	"RENEW <key> <owner> PX <milliseconds>",
	"    Extend the lease of the lock <key> if <owner> holds it.",
	"TOKEN <key>",
	"    Return the fencing token of the present grant of the lock <key>, or null if",
	"    the lock is free.",
}
