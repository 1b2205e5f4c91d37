package serve

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/resp"
)

// timeLimits are flags that limit the time of clients and commands, and
// lock-history-size, which limits the history of locks. limitFlags also returns
// every flag whose name begins with "max-".
var timeLimits = []string{
	"command-timeout", "handshake-timeout", "http-idle-timeout", "lock-history-size", "login-timeout",
	"max-write-time", "script-time", "script-wait", "slow-read-time", "slow-read-wait", "unauth-idle-timeout",
	"write-timeout",
}

// limitFlags returns the flags that limit clients, with their values.
func limitFlags(flags *pflag.FlagSet) map[string]resp.LimitFlag {
	all := make(map[string]resp.LimitFlag)
	flags.VisitAll(func(f *pflag.Flag) {
		if !strings.HasPrefix(f.Name, "max-") && !slices.Contains(timeLimits, f.Name) {
			return
		}
		value := f.Value.String()
		number, err := strconv.ParseFloat(value, 64)
		if d, bad := time.ParseDuration(value); err != nil && bad == nil {
			number = d.Seconds()
		}
		all[f.Name] = resp.LimitFlag{Value: value, Number: number}
	})
	return all
}

// limitsInForce returns the limits of the running node. If a flag is 0, so that
// the limit depends on the machine or on another flag, the result contains the
// limit that applies. Before the call, the number of processors that the
// program uses must be set.
func (o *options) limitsInForce() map[string]resp.LimitFlag {
	all := maps.Clone(o.limitFlags)
	for name, n := range map[string]int64{
		"max-client-memory":  resp.ClientMemoryLimit(o.limits.ClientMemory),
		"max-slow-reads":     int64(cluster.SlowReadSlots(o.options.SlowReads)),
		"max-unauth-clients": int64(o.limits.MaxUnauth),
	} {
		all[name] = resp.LimitFlag{Value: strconv.FormatInt(n, 10), Number: float64(n)}
	}
	return all
}
