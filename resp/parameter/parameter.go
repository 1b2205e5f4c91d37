// Package parameter lists the parameters of Redis that package resp does not handle
// entirely by itself, so that CONFIG GET and CONFIG SET know them. It checks their
// values as Redis does.
package parameter

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Class says how CONFIG SET treats a parameter.
type Class int

const (
	// NoEffect parameters are stored by the cluster, so that CONFIG GET returns
	// their values. The values have no other effect.
	NoEffect Class = iota
	// Refused parameters accept only their current value, because this program
	// does not have the behavior of another value, or because a flag sets the
	// value when the node starts.
	Refused
	// Immutable and Protected parameters cannot be changed in Redis either. The
	// only exception is that Redis accepts changes of Protected parameters if
	// enable-protected-configs is set.
	Immutable
	Protected
	// Effective parameters have the effect that they have in Redis, for the whole
	// cluster.
	Effective
)

// Parameter is a parameter of Redis in the list of this package.
type Parameter struct {
	Name  string
	Alias string // an older name of the parameter, or ""
	Start string // the parameter's value until a client changes it
	Class Class
	Why   string // the reason why a Refused parameter cannot be changed
	kind  valueKind
}

// valueKind checks a value. It returns the value as CONFIG GET prints it, or
// Redis' error text.
type valueKind func(value string) (canonical, wrong string)

func textKind(value string) (canonical, wrong string) { return value, "" }

func yesNoKind(value string) (canonical, wrong string) {
	if canonical = strings.ToLower(value); canonical == "yes" || canonical == "no" {
		return canonical, ""
	}
	return "", "argument must be 'yes' or 'no'"
}

func notOneOf(names []string) string {
	return "argument(s) must be one of the following: " + strings.Join(names, ", ")
}

// Enum returns the check of a parameter whose value must be one of the given names.
func Enum(names ...string) func(value string) (canonical, wrong string) {
	return func(value string) (canonical, wrong string) {
		if canonical = strings.ToLower(value); slices.Contains(names, canonical) {
			return canonical, ""
		}
		return "", notOneOf(names)
	}
}

// flagsKind is like Enum, for values that combine several names.
func flagsKind(names ...string) valueKind {
	return func(value string) (canonical, wrong string) {
		words := strings.Fields(strings.ToLower(value))
		for _, w := range words {
			if !slices.Contains(names, w) {
				return "", notOneOf(names)
			}
		}
		if len(words) == 0 {
			return "", notOneOf(names)
		}
		var set []string
		for _, n := range names {
			if slices.Contains(words, n) && (n != names[0] || len(set) == 0 && onlyWord(words, n)) {
				set = append(set, n)
			}
		}
		return strings.Join(set, " "), ""
	}
}

// onlyWord reports whether every word is w.
func onlyWord(words []string, w string) bool {
	return !slices.ContainsFunc(words, func(x string) bool { return x != w })
}

func between(low, high string) string {
	return "argument must be between " + low + " and " + high + " inclusive"
}

func intKind(low, high int64) valueKind {
	return func(value string) (canonical, wrong string) {
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != value:
			return "", "argument couldn't be parsed into an integer"
		case n < low || n > high:
			return "", between(strconv.FormatInt(low, 10), strconv.FormatInt(high, 10))
		}
		return value, ""
	}
}

// hertzKind checks the value of hz. Redis clamps the value to the range 1 to 500.
func hertzKind(value string) (canonical, wrong string) {
	if canonical, wrong = intKind(0, math.MaxInt32)(value); wrong != "" {
		return "", wrong
	}
	n, _ := strconv.Atoi(canonical) // intKind has checked it
	return strconv.Itoa(min(max(n, 1), 500)), ""
}

// memoryUnits maps the units of sizes to bytes.
var memoryUnits = map[string]uint64{
	"": 1, "b": 1,
	"k": 1000, "kb": 1 << 10,
	"m": 1000 * 1000, "mb": 1 << 20,
	"g": 1000 * 1000 * 1000, "gb": 1 << 30,
}

func memoryKind(low uint64) valueKind {
	return func(value string) (canonical, wrong string) {
		if value == "" { // Redis reads an empty value as 0
			value = "0"
		}
		digits := len(value) - len(strings.TrimLeft(value, "0123456789"))
		unit, known := memoryUnits[strings.ToLower(value[digits:])]
		if digits == 0 || !known {
			return "", "argument must be a memory value"
		}
		n, err := strconv.ParseUint(value[:digits], 10, 64)
		if err != nil || n > math.MaxInt64/unit || n*unit < low {
			return "", between(strconv.FormatUint(low, 10), strconv.FormatInt(math.MaxInt64, 10))
		}
		return strconv.FormatUint(n*unit, 10), ""
	}
}

// backlogKind checks the value of repl-backlog-size. Redis raises small values.
func backlogKind(value string) (canonical, wrong string) {
	if canonical, wrong = memoryKind(1)(value); wrong != "" {
		return "", wrong
	}
	n, _ := strconv.ParseInt(canonical, 10, 64) // memoryKind has checked it
	return strconv.FormatInt(max(n, 16<<10), 10), ""
}

// percentilesKind checks the value of latency-tracking-info-percentiles.
func percentilesKind(value string) (canonical, wrong string) {
	const name = "latency-tracking-info-percentiles"
	var all []string
	if value == "" {
		return "", ""
	}
	for _, w := range strings.Split(value, " ") {
		n, err := strconv.ParseFloat(w, 64)
		switch {
		case err != nil:
			return "", "Invalid " + name + " parameters"
		case !(n >= 0 && n <= 100):
			return "", name + " parameters should sit between [0.0,100.0]"
		}
		all = append(all, strconv.FormatFloat(n, 'f', -1, 64))
	}
	return strings.Join(all, " "), ""
}

// oomValuesKind checks the value of oom-score-adj-values.
func oomValuesKind(value string) (canonical, wrong string) {
	words := strings.Fields(value)
	if len(words) != 3 {
		return "", "wrong number of arguments"
	}
	for _, w := range words {
		if n, err := strconv.Atoi(w); err != nil || n < -2000 || n > 2000 {
			return "", "Invalid oom-score-adj-values, elements must be between -2000 and 2000."
		}
	}
	return strings.Join(words, " "), ""
}

// titleKind checks the value of proc-title-template: text with the names of
// variables in braces. The variable title may be empty, so the text must contain
// something else.
func titleKind(value string) (canonical, wrong string) {
	const invalid = "template format is invalid or contains unknown variables"
	if strings.ReplaceAll(value, "{title}", "") == "" {
		return "", invalid
	}
	known := []string{"title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"}
	for rest := value; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return value, ""
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed || !slices.Contains(known, name) {
			return "", invalid
		}
		rest = next
	}
}

// byName indexes the parameters by name and alias.
var byName = index()

func index() map[string]*Parameter {
	names := make(map[string]*Parameter, len(parameters))
	for i := range parameters {
		p := &parameters[i]
		names[p.Name] = p
		if p.Alias != "" {
			names[p.Alias] = p
		}
	}
	return names
}

// Find returns the parameter whose name or alias is name, or nil. name must be in
// lower case.
func Find(name string) *Parameter { return byName[name] }

// Starts returns the value that each parameter has until a client changes it,
// by name and by alias.
func Starts() map[string]string {
	all := make(map[string]string, len(byName))
	for name, p := range byName {
		all[name] = p.Start
	}
	return all
}

// Replicated reports whether the cluster stores the value of a parameter, but
// does not use it.
func Replicated(name string) bool {
	p := byName[name]
	return p != nil && p.Class == NoEffect
}

// Check checks a value that a client wants to set in place of current. It
// returns the value as CONFIG GET prints it, or the reason why it is rejected.
func (p *Parameter) Check(value, current string) (canonical, wrong string) {
	if canonical, wrong = p.kind(value); wrong != "" {
		return "", wrong
	}
	if p.Class == Refused && canonical != current {
		return "", "it stays '" + current + "': " + p.Why
	}
	return canonical, ""
}

// WithoutEffect returns the names of the parameters that CONFIG SET accepts and
// that have no effect.
func WithoutEffect() []string { return namesOf(NoEffect) }

// Unchangeable returns the names of the parameters that cannot be changed in
// Redis either.
func Unchangeable() []string { return append(namesOf(Immutable), namesOf(Protected)...) }

func namesOf(class Class) []string {
	var names []string
	for i := range parameters {
		if p := &parameters[i]; p.Class == class {
			names = append(names, p.Name)
			if p.Alias != "" {
				names = append(names, p.Alias)
			}
		}
	}
	return names
}

// Refusals returns the names of the parameters that this program refuses to
// change, with the reason of each.
func Refusals() (names, reasons []string) {
	for i := range parameters {
		if p := &parameters[i]; p.Class == Refused {
			names, reasons = append(names, p.Name), append(reasons, p.Why)
		}
	}
	return names, reasons
}

const whyAdvertised = "--advertise-client-addr sets the address at which clients reach a node"

// tlsByFlags is the reason why the parameters about TLS are refused.
const tlsByFlags = "TLS is set by --tls-cert-file and the like"

// parameters are the parameters of Redis 7.0.15 that package resp does not handle
// entirely by itself. Start is the value in a Redis that runs without a
// configuration file. Package resp replaces it for some parameters, such as dir
// and cluster-enabled.
var parameters = []Parameter{
	{Name: "aclfile", Class: Immutable},
	{Name: "active-defrag-cycle-max", Start: "25", kind: intKind(1, 99)},
	{Name: "active-defrag-cycle-min", Start: "1", kind: intKind(1, 99)},
	{Name: "active-defrag-ignore-bytes", Start: "104857600", kind: memoryKind(1)},
	{Name: "active-defrag-max-scan-fields", Start: "1000", kind: intKind(1, math.MaxInt64)},
	{Name: "active-defrag-threshold-lower", Start: "10", kind: intKind(0, 1000)},
	{Name: "active-defrag-threshold-upper", Start: "100", kind: intKind(0, 1000)},
	{Name: "active-expire-effort", Start: "1", kind: intKind(1, 10)},
	{Name: "activedefrag", Start: "no", Class: Refused, Why: "memory is not defragmented", kind: yesNoKind},
	{Name: "activerehashing", Start: "yes", kind: yesNoKind},
	{Name: "always-show-logo", Start: "no", Class: Immutable},
	{Name: "aof-disable-auto-gc", Start: "no", kind: yesNoKind},
	{Name: "aof-load-truncated", Start: "yes", kind: yesNoKind},
	{Name: "aof-rewrite-incremental-fsync", Start: "yes", kind: yesNoKind},
	{Name: "aof-timestamp-enabled", Start: "no", kind: yesNoKind},
	{Name: "aof-use-rdb-preamble", Start: "yes", kind: yesNoKind},
	{Name: "aof_rewrite_cpulist", Class: Immutable},
	{Name: "appenddirname", Start: "appendonlydir", Class: Immutable},
	{Name: "appendfilename", Start: "appendonly.aof", Class: Immutable},
	{
		Name: "appendfsync", Start: "everysec",
		Class: Refused, Why: "every write is on the disks of a majority before it is acknowledged",
		kind: Enum("everysec", "always", "no"),
	},
	{
		Name: "appendonly", Start: "no",
		Class: Refused, Why: "every write is in the log before it is acknowledged",
		kind: yesNoKind,
	},
	{Name: "auto-aof-rewrite-min-size", Start: "67108864", kind: memoryKind(0)},
	{Name: "auto-aof-rewrite-percentage", Start: "100", kind: intKind(0, math.MaxInt32)},
	{Name: "bgsave_cpulist", Class: Immutable},
	{Name: "bind", Class: Refused, Why: "it is set by --client-addr", kind: textKind},
	{
		Name:  "bind-source-addr",
		Class: Refused, Why: "the source address of connections cannot be chosen",
		kind: textKind,
	},
	{Name: "bio_cpulist", Class: Immutable},
	{Name: "busy-reply-threshold", Start: "5000", Alias: "lua-time-limit", kind: intKind(0, math.MaxInt64)},
	{
		Name:  "client-output-buffer-limit",
		Start: "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		Class: Refused, Why: "it is set by --max-message-bytes",
		kind: textKind,
	},
	{
		Name: "client-query-buffer-limit", Start: "1073741824",
		Class: Refused, Why: "it follows from --max-bulk-bytes",
		kind: memoryKind(1048576),
	},
	{Name: "cluster-allow-pubsubshard-when-down", Start: "yes", kind: yesNoKind},
	{
		Name: "cluster-allow-reads-when-down", Start: "no",
		Class: Refused, Why: "READONLY allows reads without a leader",
		kind: yesNoKind,
	},
	{Name: "cluster-allow-replica-migration", Start: "yes", kind: yesNoKind},
	{Name: "cluster-announce-bus-port", Start: "0", Class: Refused, Why: whyAdvertised, kind: intKind(0, 65535)},
	{Name: "cluster-announce-hostname", Class: Refused, Why: whyAdvertised, kind: textKind},
	{Name: "cluster-announce-ip", Class: Refused, Why: whyAdvertised, kind: textKind},
	{Name: "cluster-announce-port", Start: "0", Class: Refused, Why: whyAdvertised, kind: intKind(0, 65535)},
	{
		Name: "cluster-announce-tls-port", Start: "0",
		Class: Refused, Why: tlsByFlags,
		kind: intKind(0, 65535),
	},
	{Name: "cluster-config-file", Start: "nodes.conf", Class: Immutable},
	{Name: "cluster-enabled", Class: Immutable},
	{Name: "cluster-link-sendbuf-limit", Start: "0", kind: memoryKind(0)},
	{Name: "cluster-migration-barrier", Start: "1", kind: intKind(0, math.MaxInt32)},
	{Name: "cluster-node-timeout", Start: "15000", kind: intKind(0, math.MaxInt64)},
	{Name: "cluster-port", Start: "0", Class: Immutable},
	{
		Name: "cluster-preferred-endpoint-type", Start: "ip",
		Class: Refused, Why: whyAdvertised,
		kind: Enum("ip", "hostname", "unknown-endpoint"),
	},
	{
		Name: "cluster-replica-no-failover", Start: "no",
		Class: Refused, Why: "every voter may become leader; HOLDFAST ADD and HOLDFAST REMOVE change the members",
		Alias: "cluster-slave-no-failover",
		kind:  yesNoKind,
	},
	{
		Name: "cluster-replica-validity-factor", Start: "10",
		Alias: "cluster-slave-validity-factor",
		kind:  intKind(0, math.MaxInt32),
	},
	{Name: "cluster-require-full-coverage", Start: "yes", kind: yesNoKind},
	{Name: "crash-log-enabled", Start: "yes", kind: yesNoKind},
	{Name: "crash-memcheck-enabled", Start: "yes", kind: yesNoKind},
	{Name: "daemonize", Start: "no", Class: Immutable},
	{Name: "databases", Start: "16", Class: Immutable},
	{Name: "dbfilename", Start: "dump.rdb", Class: Protected},
	{Name: "dir", Class: Protected},
	{Name: "disable-thp", Start: "yes", Class: Immutable},
	{Name: "dynamic-hz", Start: "yes", kind: yesNoKind},
	{Name: "enable-debug-command", Start: "no", Class: Immutable},
	{Name: "enable-module-command", Start: "no", Class: Immutable},
	{Name: "enable-protected-configs", Start: "no", Class: Immutable},
	{
		Name: "hash-max-listpack-entries", Start: "512",
		Alias: "hash-max-ziplist-entries",
		kind:  intKind(0, math.MaxInt64),
	},
	{Name: "hash-max-listpack-value", Start: "64", Alias: "hash-max-ziplist-value", kind: memoryKind(0)},
	{Name: "hll-sparse-max-bytes", Start: "3000", kind: memoryKind(0)},
	{Name: "hz", Start: "10", kind: hertzKind},
	{Name: "ignore-warnings", kind: textKind},
	{Name: "io-threads", Start: "1", Class: Immutable},
	{Name: "io-threads-do-reads", Start: "no", Class: Immutable},
	{Name: "jemalloc-bg-thread", Start: "yes", kind: yesNoKind},
	{Name: "latency-tracking", Start: "yes", kind: yesNoKind},
	{Name: "latency-tracking-info-percentiles", Start: "50 99 99.9", kind: percentilesKind},
	{Name: "lazyfree-lazy-eviction", Start: "no", kind: yesNoKind},
	{Name: "lazyfree-lazy-expire", Start: "no", kind: yesNoKind},
	{Name: "lazyfree-lazy-server-del", Start: "no", kind: yesNoKind},
	{Name: "lazyfree-lazy-user-del", Start: "no", kind: yesNoKind},
	{Name: "lazyfree-lazy-user-flush", Start: "no", kind: yesNoKind},
	{Name: "lfu-decay-time", Start: "1", kind: intKind(0, math.MaxInt32)},
	{Name: "lfu-log-factor", Start: "10", kind: intKind(0, math.MaxInt32)},
	{Name: "list-compress-depth", Start: "0", kind: intKind(0, math.MaxInt32)},
	{
		Name: "list-max-listpack-size", Start: "-2",
		Alias: "list-max-ziplist-size",
		kind:  intKind(math.MinInt32, math.MaxInt32),
	},
	{Name: "logfile", Class: Immutable},
	{
		Name: "loglevel", Start: "notice",
		Class: Refused, Why: "it is set by --log-level",
		kind: Enum("debug", "verbose", "notice", "warning"),
	},
	{Name: "masterauth", Class: Refused, Why: "nodes authenticate each other with the cluster secret", kind: textKind},
	{Name: "masteruser", Class: Refused, Why: "nodes authenticate each other with the cluster secret", kind: textKind},
	{
		Name: "maxclients", Start: "10000",
		Class: Refused, Why: "it is set by --max-clients",
		kind: intKind(1, math.MaxUint32),
	},
	{Name: "maxmemory", Start: "0", Class: Effective, kind: memoryKind(0)},
	{
		Name: "maxmemory-clients", Start: "0",
		Class: Refused, Why: "it is set by --max-client-memory",
		kind: memoryKind(0),
	},
	{Name: "maxmemory-eviction-tenacity", Start: "10", kind: intKind(0, 100)},
	{
		Name: "maxmemory-policy", Start: "noeviction",
		Class: Refused, Why: "keys are never evicted",
		kind: Enum("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
			"allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"),
	},
	{Name: "maxmemory-samples", Start: "5", kind: intKind(1, math.MaxInt32)},
	{Name: "min-replicas-max-lag", Start: "10", Alias: "min-slaves-max-lag", kind: intKind(0, math.MaxInt32)},
	{
		Name: "min-replicas-to-write", Start: "0",
		Class: Refused, Why: "every write waits for a majority of the nodes",
		Alias: "min-slaves-to-write",
		kind:  intKind(0, math.MaxInt32),
	},
	{Name: "no-appendfsync-on-rewrite", Start: "no", kind: yesNoKind},
	{Name: "oom-score-adj", Start: "no", kind: Enum("no", "yes", "relative", "absolute")},
	{Name: "oom-score-adj-values", Start: "0 200 800", kind: oomValuesKind},
	{Name: "pidfile", Class: Immutable},
	{Name: "port", Class: Refused, Why: "it is set by --client-addr", kind: intKind(0, 65535)},
	{Name: "proc-title-template", Start: "{title} {listen-addr} {server-mode}", kind: titleKind},
	{Name: "propagation-error-behavior", Start: "ignore", kind: Enum("ignore", "panic", "panic-on-replicas")},
	{
		Name: "protected-mode", Start: "yes",
		Class: Refused, Why: "it is set by --protected-mode",
		kind: yesNoKind,
	},
	{
		Name: "proto-max-bulk-len", Start: "536870912",
		Class: Refused, Why: "it is set by --max-bulk-bytes",
		kind: memoryKind(0),
	},
	{Name: "rdb-del-sync-files", Start: "no", kind: yesNoKind},
	{Name: "rdb-save-incremental-fsync", Start: "yes", kind: yesNoKind},
	{Name: "rdbchecksum", Start: "yes", Class: Immutable},
	{Name: "rdbcompression", Start: "yes", kind: yesNoKind},
	{Name: "repl-backlog-size", Start: "1048576", kind: backlogKind},
	{Name: "repl-backlog-ttl", Start: "3600", kind: intKind(0, math.MaxInt64)},
	{Name: "repl-disable-tcp-nodelay", Start: "no", kind: yesNoKind},
	{Name: "repl-diskless-load", Start: "disabled", kind: Enum("disabled", "on-empty-db", "swapdb")},
	{Name: "repl-diskless-sync", Start: "yes", kind: yesNoKind},
	{Name: "repl-diskless-sync-delay", Start: "5", kind: intKind(0, math.MaxInt32)},
	{Name: "repl-diskless-sync-max-replicas", Start: "0", kind: intKind(0, math.MaxInt32)},
	{Name: "repl-ping-replica-period", Start: "10", Alias: "repl-ping-slave-period", kind: intKind(1, math.MaxInt32)},
	{Name: "repl-timeout", Start: "60", kind: intKind(1, math.MaxInt32)},
	{Name: "replica-announce-ip", Class: Refused, Why: whyAdvertised, Alias: "slave-announce-ip", kind: textKind},
	{
		Name: "replica-announce-port", Start: "0",
		Class: Refused, Why: whyAdvertised,
		Alias: "slave-announce-port",
		kind:  intKind(0, 65535),
	},
	{Name: "replica-announced", Start: "yes", Class: Refused, Why: "every member is announced", kind: yesNoKind},
	{Name: "replica-ignore-disk-write-errors", Start: "no", kind: yesNoKind},
	{Name: "replica-ignore-maxmemory", Start: "yes", Alias: "slave-ignore-maxmemory", kind: yesNoKind},
	{Name: "replica-lazy-flush", Start: "no", Alias: "slave-lazy-flush", kind: yesNoKind},
	{Name: "replica-priority", Start: "100", Alias: "slave-priority", kind: intKind(0, math.MaxInt32)},
	{
		Name: "replica-read-only", Start: "yes",
		Class: Refused, Why: "writes through a follower are executed by the leader",
		Alias: "slave-read-only",
		kind:  yesNoKind,
	},
	{
		Name: "replica-serve-stale-data", Start: "yes",
		Class: Refused, Why: "READONLY allows stale reads",
		Alias: "slave-serve-stale-data",
		kind:  yesNoKind,
	},
	{Name: "replicaof", Class: Immutable, Alias: "slaveof"},
	{Name: "sanitize-dump-payload", Start: "no", kind: Enum("no", "yes", "clients")},
	{Name: "save", Class: Refused, Why: "--snapshot-bytes decides when snapshots are taken", kind: textKind},
	{Name: "server_cpulist", Class: Immutable},
	{Name: "set-max-intset-entries", Start: "512", kind: intKind(0, math.MaxInt64)},
	{Name: "set-proc-title", Start: "yes", Class: Immutable},
	{Name: "shutdown-on-sigint", Start: "default", kind: flagsKind("default", "save", "nosave", "now", "force")},
	{Name: "shutdown-on-sigterm", Start: "default", kind: flagsKind("default", "save", "nosave", "now", "force")},
	{Name: "shutdown-timeout", Start: "10", kind: intKind(0, math.MaxInt32)},
	{Name: "socket-mark-id", Start: "0", Class: Immutable},
	{Name: "stop-writes-on-bgsave-error", Start: "yes", kind: yesNoKind},
	{Name: "stream-node-max-bytes", Start: "4096", kind: memoryKind(0)},
	{Name: "stream-node-max-entries", Start: "100", kind: intKind(0, math.MaxInt64)},
	{Name: "supervised", Start: "no", Class: Immutable},
	{Name: "syslog-enabled", Start: "no", Class: Immutable},
	{Name: "syslog-facility", Start: "local0", Class: Immutable},
	{Name: "syslog-ident", Start: "redis", Class: Immutable},
	{Name: "tcp-backlog", Start: "511", Class: Immutable},
	{Name: "tcp-keepalive", Start: "300", Class: Refused, Why: "it is fixed", kind: intKind(0, math.MaxInt32)},
	{
		Name: "timeout", Start: "0",
		Class: Refused, Why: "idle connections are not closed",
		kind: intKind(0, math.MaxInt32),
	},
	{
		Name: "tls-auth-clients", Start: "yes",
		Class: Refused, Why: tlsByFlags,
		kind: Enum("no", "yes", "optional"),
	},
	{Name: "tls-ca-cert-dir", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-ca-cert-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-cert-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-ciphers", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-ciphersuites", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-client-cert-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-client-key-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-client-key-file-pass", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-cluster", Start: "no", Class: Refused, Why: tlsByFlags, kind: yesNoKind},
	{Name: "tls-dh-params-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-key-file", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-key-file-pass", Class: Refused, Why: tlsByFlags, kind: textKind},
	{Name: "tls-port", Start: "0", Class: Refused, Why: tlsByFlags, kind: textKind},
	{
		Name: "tls-prefer-server-ciphers", Start: "no",
		Class: Refused, Why: tlsByFlags,
		kind: yesNoKind,
	},
	{Name: "tls-protocols", Class: Refused, Why: tlsByFlags, kind: textKind},
	{
		Name: "tls-replication", Start: "no",
		Class: Refused, Why: tlsByFlags,
		kind: yesNoKind,
	},
	{
		Name: "tls-session-cache-size", Start: "20480",
		Class: Refused, Why: tlsByFlags,
		kind: intKind(0, math.MaxInt32),
	},
	{
		Name: "tls-session-cache-timeout", Start: "300",
		Class: Refused, Why: tlsByFlags,
		kind: intKind(0, math.MaxInt32),
	},
	{
		Name: "tls-session-caching", Start: "yes",
		Class: Refused, Why: tlsByFlags,
		kind: yesNoKind,
	},
	{
		Name: "tracking-table-max-keys", Start: "1000000",
		Class: Refused, Why: "it is fixed",
		kind: intKind(0, math.MaxInt64),
	},
	{Name: "unixsocket", Class: Immutable},
	{Name: "unixsocketperm", Start: "0", Class: Immutable},
	{
		Name: "zset-max-listpack-entries", Start: "128",
		Alias: "zset-max-ziplist-entries",
		kind:  intKind(0, math.MaxInt64),
	},
	{Name: "zset-max-listpack-value", Start: "64", Alias: "zset-max-ziplist-value", kind: memoryKind(0)},
}
