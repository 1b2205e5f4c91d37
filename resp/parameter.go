package resp

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// parameterClass says how CONFIG SET treats a parameter of Redis.
type parameterClass int

const (
	// noEffect: CONFIG SET checks the value as Redis does, and the cluster
	// stores it, so that CONFIG GET returns it. The value has no other effect.
	noEffect parameterClass = iota
	// refused: CONFIG SET accepts only the present value. Another value would
	// promise a behavior that this program does not have.
	refused
	// immutable and protected: Redis refuses to change these parameters too.
	immutable
	protected
)

// parameter is a parameter of Redis for which this program has no setting of
// its own.
type parameter struct {
	name  string
	alias string // an older name of the parameter
	start string
	class parameterClass
	why   string // why it is refused
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

func enumKind(names ...string) valueKind {
	return func(value string) (canonical, wrong string) {
		if canonical = strings.ToLower(value); slices.Contains(names, canonical) {
			return canonical, ""
		}
		return "", notOneOf(names)
	}
}

// flagsKind is enumKind for values that combine several names.
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

// hertzKind checks the value of hz. Redis clamps it to its bounds.
func hertzKind(value string) (canonical, wrong string) {
	if canonical, wrong = intKind(0, math.MaxInt32)(value); wrong != "" {
		return "", wrong
	}
	n, _ := strconv.Atoi(canonical) // intKind has checked it
	return strconv.Itoa(min(max(n, 1), 500)), ""
}

// memoryUnits maps the units of sizes to bytes.
var memoryUnits = map[string]uint64{"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000 * 1000, "mb": 1 << 20, "g": 1000 * 1000 * 1000, "gb": 1 << 30}

func memoryKind(low uint64) valueKind {
	return func(value string) (canonical, wrong string) {
		if value == "" { // Redis reads it so
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
// variables in braces. The variable title may be empty, but the whole text must
// not be.
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

// parameterNames indexes the parameters by name and alias.
var parameterNames = indexParameters()

func indexParameters() map[string]*parameter {
	names := make(map[string]*parameter, len(parameters))
	for i := range parameters {
		p := &parameters[i]
		names[p.name] = p
		if p.alias != "" {
			names[p.alias] = p
		}
	}
	return names
}

// isReplicated reports whether the cluster stores the value of a parameter.
func isReplicated(name string) bool {
	p := parameterNames[name]
	return p != nil && p.class == noEffect
}

// check checks a value that a client wants to set in place of current.
func (p *parameter) check(value, current string) (canonical, wrong string) {
	if canonical, wrong = p.kind(value); wrong != "" {
		return "", wrong
	}
	if p.class == refused && canonical != current {
		return "", "it stays '" + current + "': " + p.why
	}
	return canonical, ""
}

// ParametersWithoutEffect returns the names of Redis' parameters that CONFIG
// SET accepts and that have no effect.
func ParametersWithoutEffect() []string { return namesOf(noEffect) }

// ImmutableParameters returns the names of the parameters that Redis refuses to
// change too.
func ImmutableParameters() []string { return append(namesOf(immutable), namesOf(protected)...) }

func namesOf(class parameterClass) []string {
	var names []string
	for i := range parameters {
		if p := &parameters[i]; p.class == class {
			names = append(names, p.name)
			if p.alias != "" {
				names = append(names, p.alias)
			}
		}
	}
	return names
}

// RefusedParameters returns the names of the parameters that this program
// refuses to change, with the reason of each.
func RefusedParameters() (names, reasons []string) {
	for i := range parameters {
		if p := &parameters[i]; p.class == refused {
			names, reasons = append(names, p.name), append(reasons, p.why)
		}
	}
	return names, reasons
}

// OwnSettings returns the names of the settings that have an effect.
func OwnSettings() (names []string) {
	names = []string{"acl-pubsub-default", fsm.SettingNotify, "requirepass"}
	for name := range boundedSettings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// parameters are the parameters of Redis 7.0.15 for which this program has no
// setting of its own. start is the value in a Redis that runs without a
// configuration file.
var parameters = []parameter{
	{name: "aclfile", class: immutable},
	{name: "active-defrag-cycle-max", start: "25", kind: intKind(1, 99)},
	{name: "active-defrag-cycle-min", start: "1", kind: intKind(1, 99)},
	{name: "active-defrag-ignore-bytes", start: "104857600", kind: memoryKind(1)},
	{name: "active-defrag-max-scan-fields", start: "1000", kind: intKind(1, math.MaxInt64)},
	{name: "active-defrag-threshold-lower", start: "10", kind: intKind(0, 1000)},
	{name: "active-defrag-threshold-upper", start: "100", kind: intKind(0, 1000)},
	{name: "active-expire-effort", start: "1", kind: intKind(1, 10)},
	{name: "activedefrag", start: "no", class: refused, why: "memory is not defragmented", kind: yesNoKind},
	{name: "activerehashing", start: "yes", kind: yesNoKind},
	{name: "always-show-logo", start: "no", class: immutable},
	{name: "aof-disable-auto-gc", start: "no", kind: yesNoKind},
	{name: "aof-load-truncated", start: "yes", kind: yesNoKind},
	{name: "aof-rewrite-incremental-fsync", start: "yes", kind: yesNoKind},
	{name: "aof-timestamp-enabled", start: "no", kind: yesNoKind},
	{name: "aof-use-rdb-preamble", start: "yes", kind: yesNoKind},
	{name: "aof_rewrite_cpulist", class: immutable},
	{name: "appenddirname", start: "appendonlydir", class: immutable},
	{name: "appendfilename", start: "appendonly.aof", class: immutable},
	{name: "appendfsync", start: "everysec", class: refused, why: "every write is on the disks of a majority before it is acknowledged", kind: enumKind("everysec", "always", "no")},
	{name: "appendonly", start: "no", class: refused, why: "every write is in the log before it is acknowledged", kind: yesNoKind},
	{name: "auto-aof-rewrite-min-size", start: "67108864", kind: memoryKind(0)},
	{name: "auto-aof-rewrite-percentage", start: "100", kind: intKind(0, math.MaxInt32)},
	{name: "bgsave_cpulist", class: immutable},
	{name: "bind", class: refused, why: "it is set by --client-addr", kind: textKind},
	{name: "bind-source-addr", class: refused, why: "the source address of connections cannot be chosen", kind: textKind},
	{name: "bio_cpulist", class: immutable},
	{name: "busy-reply-threshold", start: "5000", alias: "lua-time-limit", kind: intKind(0, math.MaxInt64)},
	{name: "client-output-buffer-limit", start: "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", class: refused, why: "it is fixed", kind: textKind},
	{name: "client-query-buffer-limit", start: "1073741824", class: refused, why: "it is fixed", kind: memoryKind(1048576)},
	{name: "cluster-allow-pubsubshard-when-down", start: "yes", kind: yesNoKind},
	{name: "cluster-allow-reads-when-down", start: "no", class: refused, why: "READONLY allows reads without a leader", kind: yesNoKind},
	{name: "cluster-allow-replica-migration", start: "yes", kind: yesNoKind},
	{name: "cluster-announce-bus-port", start: "0", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", kind: intKind(0, 65535)},
	{name: "cluster-announce-hostname", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", kind: textKind},
	{name: "cluster-announce-ip", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", kind: textKind},
	{name: "cluster-announce-port", start: "0", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", kind: intKind(0, 65535)},
	{name: "cluster-announce-tls-port", start: "0", class: refused, why: "the client port does not support TLS", kind: intKind(0, 65535)},
	{name: "cluster-config-file", start: "nodes.conf", class: immutable},
	{name: "cluster-enabled", class: immutable},
	{name: "cluster-link-sendbuf-limit", start: "0", kind: memoryKind(0)},
	{name: "cluster-migration-barrier", start: "1", kind: intKind(0, math.MaxInt32)},
	{name: "cluster-node-timeout", start: "15000", kind: intKind(0, math.MaxInt64)},
	{name: "cluster-port", start: "0", class: immutable},
	{name: "cluster-preferred-endpoint-type", start: "ip", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", kind: enumKind("ip", "hostname", "unknown-endpoint")},
	{name: "cluster-replica-no-failover", start: "no", class: refused, why: "every voter may become leader; HOLDFAST ADD and HOLDFAST REMOVE change the members", alias: "cluster-slave-no-failover", kind: yesNoKind},
	{name: "cluster-replica-validity-factor", start: "10", alias: "cluster-slave-validity-factor", kind: intKind(0, math.MaxInt32)},
	{name: "cluster-require-full-coverage", start: "yes", kind: yesNoKind},
	{name: "crash-log-enabled", start: "yes", kind: yesNoKind},
	{name: "crash-memcheck-enabled", start: "yes", kind: yesNoKind},
	{name: "daemonize", start: "no", class: immutable},
	{name: "databases", start: "16", class: immutable},
	{name: "dbfilename", start: "dump.rdb", class: protected},
	{name: "dir", class: protected},
	{name: "disable-thp", start: "yes", class: immutable},
	{name: "dynamic-hz", start: "yes", kind: yesNoKind},
	{name: "enable-debug-command", start: "no", class: immutable},
	{name: "enable-module-command", start: "no", class: immutable},
	{name: "enable-protected-configs", start: "no", class: immutable},
	{name: "hash-max-listpack-entries", start: "512", alias: "hash-max-ziplist-entries", kind: intKind(0, math.MaxInt64)},
	{name: "hash-max-listpack-value", start: "64", alias: "hash-max-ziplist-value", kind: memoryKind(0)},
	{name: "hll-sparse-max-bytes", start: "3000", kind: memoryKind(0)},
	{name: "hz", start: "10", kind: hertzKind},
	{name: "ignore-warnings", kind: textKind},
	{name: "io-threads", start: "1", class: immutable},
	{name: "io-threads-do-reads", start: "no", class: immutable},
	{name: "jemalloc-bg-thread", start: "yes", kind: yesNoKind},
	{name: "latency-tracking", start: "yes", kind: yesNoKind},
	{name: "latency-tracking-info-percentiles", start: "50 99 99.9", kind: percentilesKind},
	{name: "lazyfree-lazy-eviction", start: "no", kind: yesNoKind},
	{name: "lazyfree-lazy-expire", start: "no", kind: yesNoKind},
	{name: "lazyfree-lazy-server-del", start: "no", kind: yesNoKind},
	{name: "lazyfree-lazy-user-del", start: "no", kind: yesNoKind},
	{name: "lazyfree-lazy-user-flush", start: "no", kind: yesNoKind},
	{name: "lfu-decay-time", start: "1", kind: intKind(0, math.MaxInt32)},
	{name: "lfu-log-factor", start: "10", kind: intKind(0, math.MaxInt32)},
	{name: "list-compress-depth", start: "0", kind: intKind(0, math.MaxInt32)},
	{name: "list-max-listpack-size", start: "-2", alias: "list-max-ziplist-size", kind: intKind(math.MinInt32, math.MaxInt32)},
	{name: "logfile", class: immutable},
	{name: "loglevel", start: "notice", class: refused, why: "it is set by --log-level", kind: enumKind("debug", "verbose", "notice", "warning")},
	{name: "masterauth", class: refused, why: "nodes authenticate each other with the cluster secret", kind: textKind},
	{name: "masteruser", class: refused, why: "nodes authenticate each other with the cluster secret", kind: textKind},
	{name: "maxclients", start: "10000", class: refused, why: "it is set by --max-clients", kind: intKind(1, math.MaxUint32)},
	{name: "maxmemory", start: "0", class: refused, why: "keys are never evicted", kind: memoryKind(0)},
	{name: "maxmemory-clients", start: "0", class: refused, why: "it is set by --max-client-memory", kind: memoryKind(0)},
	{name: "maxmemory-eviction-tenacity", start: "10", kind: intKind(0, 100)},
	{name: "maxmemory-policy", start: "noeviction", class: refused, why: "keys are never evicted", kind: enumKind("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction")},
	{name: "maxmemory-samples", start: "5", kind: intKind(1, math.MaxInt32)},
	{name: "min-replicas-max-lag", start: "10", alias: "min-slaves-max-lag", kind: intKind(0, math.MaxInt32)},
	{name: "min-replicas-to-write", start: "0", class: refused, why: "every write waits for a majority of the nodes", alias: "min-slaves-to-write", kind: intKind(0, math.MaxInt32)},
	{name: "no-appendfsync-on-rewrite", start: "no", kind: yesNoKind},
	{name: "oom-score-adj", start: "no", kind: enumKind("no", "yes", "relative", "absolute")},
	{name: "oom-score-adj-values", start: "0 200 800", kind: oomValuesKind},
	{name: "pidfile", class: immutable},
	{name: "port", class: refused, why: "it is set by --client-addr", kind: intKind(0, 65535)},
	{name: "proc-title-template", start: "{title} {listen-addr} {server-mode}", kind: titleKind},
	{name: "propagation-error-behavior", start: "ignore", kind: enumKind("ignore", "panic", "panic-on-replicas")},
	{name: "protected-mode", start: "yes", class: refused, why: "there is no such mode: set a password", kind: yesNoKind},
	{name: "proto-max-bulk-len", start: "536870912", class: refused, why: "it is set by --max-bulk-bytes", kind: memoryKind(0)},
	{name: "rdb-del-sync-files", start: "no", kind: yesNoKind},
	{name: "rdb-save-incremental-fsync", start: "yes", kind: yesNoKind},
	{name: "rdbchecksum", start: "yes", class: immutable},
	{name: "rdbcompression", start: "yes", kind: yesNoKind},
	{name: "repl-backlog-size", start: "1048576", kind: backlogKind},
	{name: "repl-backlog-ttl", start: "3600", kind: intKind(0, math.MaxInt64)},
	{name: "repl-disable-tcp-nodelay", start: "no", kind: yesNoKind},
	{name: "repl-diskless-load", start: "disabled", kind: enumKind("disabled", "on-empty-db", "swapdb")},
	{name: "repl-diskless-sync", start: "yes", kind: yesNoKind},
	{name: "repl-diskless-sync-delay", start: "5", kind: intKind(0, math.MaxInt32)},
	{name: "repl-diskless-sync-max-replicas", start: "0", kind: intKind(0, math.MaxInt32)},
	{name: "repl-ping-replica-period", start: "10", alias: "repl-ping-slave-period", kind: intKind(1, math.MaxInt32)},
	{name: "repl-timeout", start: "60", kind: intKind(1, math.MaxInt32)},
	{name: "replica-announce-ip", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", alias: "slave-announce-ip", kind: textKind},
	{name: "replica-announce-port", start: "0", class: refused, why: "--advertise-client-addr sets the address at which clients reach a node", alias: "slave-announce-port", kind: intKind(0, 65535)},
	{name: "replica-announced", start: "yes", class: refused, why: "every member is announced", kind: yesNoKind},
	{name: "replica-ignore-disk-write-errors", start: "no", kind: yesNoKind},
	{name: "replica-ignore-maxmemory", start: "yes", alias: "slave-ignore-maxmemory", kind: yesNoKind},
	{name: "replica-lazy-flush", start: "no", alias: "slave-lazy-flush", kind: yesNoKind},
	{name: "replica-priority", start: "100", alias: "slave-priority", kind: intKind(0, math.MaxInt32)},
	{name: "replica-read-only", start: "yes", class: refused, why: "writes through a follower are executed by the leader", alias: "slave-read-only", kind: yesNoKind},
	{name: "replica-serve-stale-data", start: "yes", class: refused, why: "READONLY allows stale reads", alias: "slave-serve-stale-data", kind: yesNoKind},
	{name: "replicaof", class: immutable, alias: "slaveof"},
	{name: "sanitize-dump-payload", start: "no", kind: enumKind("no", "yes", "clients")},
	{name: "save", class: refused, why: "--snapshot-bytes decides when snapshots are taken", kind: textKind},
	{name: "server_cpulist", class: immutable},
	{name: "set-max-intset-entries", start: "512", kind: intKind(0, math.MaxInt64)},
	{name: "set-proc-title", start: "yes", class: immutable},
	{name: "shutdown-on-sigint", start: "default", kind: flagsKind("default", "save", "nosave", "now", "force")},
	{name: "shutdown-on-sigterm", start: "default", kind: flagsKind("default", "save", "nosave", "now", "force")},
	{name: "shutdown-timeout", start: "10", kind: intKind(0, math.MaxInt32)},
	{name: "socket-mark-id", start: "0", class: immutable},
	{name: "stop-writes-on-bgsave-error", start: "yes", kind: yesNoKind},
	{name: "stream-node-max-bytes", start: "4096", kind: memoryKind(0)},
	{name: "stream-node-max-entries", start: "100", kind: intKind(0, math.MaxInt64)},
	{name: "supervised", start: "no", class: immutable},
	{name: "syslog-enabled", start: "no", class: immutable},
	{name: "syslog-facility", start: "local0", class: immutable},
	{name: "syslog-ident", start: "redis", class: immutable},
	{name: "tcp-backlog", start: "511", class: immutable},
	{name: "tcp-keepalive", start: "300", class: refused, why: "it is fixed", kind: intKind(0, math.MaxInt32)},
	{name: "timeout", start: "0", class: refused, why: "idle connections are not closed", kind: intKind(0, math.MaxInt32)},
	{name: "tls-auth-clients", start: "yes", class: refused, why: "the client port does not support TLS", kind: enumKind("no", "yes", "optional")},
	{name: "tls-ca-cert-dir", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-ca-cert-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-cert-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-ciphers", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-ciphersuites", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-client-cert-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-client-key-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-client-key-file-pass", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-cluster", start: "no", class: refused, why: "the client port does not support TLS", kind: yesNoKind},
	{name: "tls-dh-params-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-key-file", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-key-file-pass", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-port", start: "0", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-prefer-server-ciphers", start: "no", class: refused, why: "the client port does not support TLS", kind: yesNoKind},
	{name: "tls-protocols", class: refused, why: "the client port does not support TLS", kind: textKind},
	{name: "tls-replication", start: "no", class: refused, why: "the client port does not support TLS", kind: yesNoKind},
	{name: "tls-session-cache-size", start: "20480", class: refused, why: "the client port does not support TLS", kind: intKind(0, math.MaxInt32)},
	{name: "tls-session-cache-timeout", start: "300", class: refused, why: "the client port does not support TLS", kind: intKind(0, math.MaxInt32)},
	{name: "tls-session-caching", start: "yes", class: refused, why: "the client port does not support TLS", kind: yesNoKind},
	{name: "tracking-table-max-keys", start: "1000000", class: refused, why: "it is fixed", kind: intKind(0, math.MaxInt64)},
	{name: "unixsocket", class: immutable},
	{name: "unixsocketperm", start: "0", class: immutable},
	{name: "zset-max-listpack-entries", start: "128", alias: "zset-max-ziplist-entries", kind: intKind(0, math.MaxInt64)},
	{name: "zset-max-listpack-value", start: "64", alias: "zset-max-ziplist-value", kind: memoryKind(0)},
}
