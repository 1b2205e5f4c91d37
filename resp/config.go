package resp

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/metrics"
	"github.com/holdfast-kv/holdfast/resp/parameter"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

var configRows = []row{
	{cmd: &fsm.Command{
		Name: "config", Arity: -2,
		Group: "server", Since: "2.0.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about settings",
	}, sub: []row{
		{run: configGet, cmd: &fsm.Command{
			Name: "get", Arity: -3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.0.0",
			Complexity: "O(N) where N is the number of patterns",
			Syntax:     "parameter [parameter ...]",
			Doc:        "Return the settings whose names match patterns",
		}},
		{run: configSet, hooks: hooks{secrets: hideRequirePass}, cmd: &fsm.Command{
			Name: "set", Arity: -4,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.0.0",
			Complexity: "O(N) where N is the number of settings",
			Syntax:     "parameter value [parameter value ...]",
			Doc: "Change settings: lock-delay, lock-idempotent, maxmemory, notify-keyspace-events and requirepass " +
				"of the whole cluster, acllog-max-len, acl-pubsub-default, latency-monitor-threshold, " +
				"slowlog-log-slower-than and slowlog-max-len of this node until it is restarted; other parameters " +
				"of Redis are kept without effect or refused: see docs/config.md",
			Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		}},
		{run: configResetstat, cmd: &fsm.Command{
			Name: "resetstat", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.0.0",
			Complexity: "O(1)",
			Doc:        "Reset the statistics of INFO to zero",
		}},
		{run: configRewrite, cmd: &fsm.Command{
			Name: "rewrite", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.0",
			Complexity: "O(1)",
			Doc:        "Refused: there is no configuration file",
		}},
		helpRow("5.0.0"),
	}},
}

// settings returns the settings that CONFIG GET prints: all parameters of Redis
// 7.0.15, the settings of locks, and the limits that flags of the program set.
// Where this server uses a value that differs from that of Redis, settings
// returns the value that the server uses. For settings that are part of the
// replicated state, except maxmemory, it returns the initial values. The method
// conn.replicated returns the current values of those that were ever changed.
func (s *Server) settings() map[string]string {
	l := s.cfg.Limits
	bind, port := "", strconv.Itoa(s.port.number)
	if host, _, err := net.SplitHostPort(s.cfg.Addr); err == nil {
		bind = host
	}
	all := parameter.Starts()
	maps.Copy(all, map[string]string{
		"acl-pubsub-default": channelDefaults[s.accounts.openChannels.Load()],
		"appendfsync":        "always",
		"appendonly":         "yes",
		"bind":               bind,
		"client-output-buffer-limit": fmt.Sprintf("normal 0 0 0 slave 0 0 0 pubsub %d %d %d",
			l.PushHard, l.PushSoft, int(l.PushSoftTime.Seconds())),
		"client-query-buffer-limit": strconv.Itoa(l.MaxCommand),
		"cluster-enabled":           yesNo(s.cfg.Mode == Clustered),
		"databases":                 strconv.Itoa(fsm.Databases),
		"dir":                       s.cfg.DataDir,
		fsm.SettingDelay:            "",
		fsm.SettingIdempotent:       "",
		"maxclients":                strconv.Itoa(l.MaxClients),
		fsm.SettingMaxMemory:        strconv.FormatInt(s.cluster.State().MaxMemory, 10),
		"maxmemory-clients":         strconv.FormatInt(s.clientMem.Limit(), 10),
		"notify-keyspace-events":    "",
		"port":                      port,
		"proto-max-bulk-len":        strconv.Itoa(l.MaxBulk),
		"protected-mode":            "no",
		"requirepass":               "", // the node knows only the hash of the password
		"tracking-table-max-keys":   strconv.Itoa(pubsub.MaxTrackedKeys),
		"tcp-keepalive":             strconv.Itoa(int(guard.KeepAlive.Seconds())),
	})
	for name, b := range boundedSettings {
		all[name] = strconv.FormatInt(b.get(s), 10)
	}
	maps.Copy(all, s.limitSettings())
	return all
}

func configGet(c *conn, args [][]byte) fsm.Reply {
	all := c.srv.settings()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(args[2:], func(p []byte) bool { return matchName(string(p), name) }) {
			names = append(names, name)
		}
	}
	if slices.ContainsFunc(names, isClusterSetting) {
		kept, err := c.replicated()
		if err != nil {
			return fsm.Error(errorText(err))
		}
		// Call settings again: if the cluster has no setting maxmemory, the
		// value comes from this node's state, which may have caught up only
		// during the read above.
		all = c.srv.settings()
		for name, value := range kept {
			if name == fsm.SettingMaxMemory && value == "" {
				continue // keep the limit of this node
			}
			all[name] = value
			if p := parameter.Find(name); p != nil && p.Alias != "" {
				all[p.Alias] = value
			}
		}
	}
	var out []fsm.Reply
	for _, name := range names {
		out = append(out, fsm.Bulk(name), fsm.Bulk(all[name]))
	}
	return fsm.Map(out)
}

// isClusterSetting reports whether the cluster stores a setting, so that it is
// the same on all nodes.
func isClusterSetting(name string) bool {
	switch name {
	case fsm.SettingNotify, fsm.SettingDelay, fsm.SettingIdempotent, fsm.SettingMaxMemory:
		return true
	}
	return parameter.Replicated(name)
}

// replicated returns the settings of the whole cluster that were ever changed.
// It reads them linearizably or, if there is no leader, from this node's state.
func (c *conn) replicated() (map[string]string, error) {
	if c.srv.cluster.FeatureVersion(0) < fsm.FeatureMend {
		// FeatureVersion(0) returns the version that this node knows, and never
		// waits. FeatureVersion(fsm.FeatureMend) would wait for a leader, and the
		// read after it would wait again. So the read that every feature version
		// supports comes first: if it fails, there is no leader.
		kept, err := c.notifySetting(false)
		if err != nil {
			return c.notifySetting(true)
		}
		if c.srv.cluster.FeatureVersion(fsm.FeatureMend) < fsm.FeatureMend {
			return kept, nil
		}
	}
	out, err := c.setting(false, fsm.GetSettingsCommand)
	if err != nil {
		if out, err = c.setting(true, fsm.GetSettingsCommand); err != nil {
			return nil, err
		}
	}
	return parseSettings(out)
}

// parseSettings reads the reply of fsm.GetSettingsCommand.
func parseSettings(out []byte) (map[string]string, error) {
	head, _, n := wire.Head(out)
	rest, all := out[head:], make(map[string]string)
	for ; n > 1; n -= 2 {
		var name, value string
		var ok, ok2 bool
		name, rest, ok = wire.CutBulk(rest)
		value, rest, ok2 = wire.CutBulk(rest)
		if !ok || !ok2 {
			break
		}
		all[name] = value
	}
	if n != 0 || head == 0 {
		return nil, fmt.Errorf("read settings: unexpected reply %q", out)
	}
	return all, nil
}

// setting runs a command that reads settings of the cluster, and returns its
// encoded reply.
func (c *conn) setting(local bool, words ...string) ([]byte, error) {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	c.group.Command(c.srv.cmds.internal(words[0]), c.db, args)
	defer c.reset()
	return c.do(local)
}

// notifySetting reads notify-keyspace-events, the only setting of the cluster
// below fsm.FeatureMend.
func (c *conn) notifySetting(local bool) (map[string]string, error) {
	out, err := c.setting(local, fsm.GetSettingCommand, fsm.SettingNotify)
	if err != nil {
		return nil, err
	}
	value, rest, ok := wire.CutBulk(out)
	if !ok || len(rest) > 0 {
		return nil, fmt.Errorf("read %s: unexpected reply %q", fsm.SettingNotify, out)
	}
	return map[string]string{fsm.SettingNotify: value}, nil
}

// replicate changes settings of the whole cluster, all or none. pairs contains
// names and values, alternating. If the state machine rejects them, refusal is
// its error. Programs older than fsm.FeatureMend know notify-keyspace-events
// only, so a change of that setting alone uses the older command.
func (c *conn) replicate(pairs [][]byte) (refusal string, err error) {
	command := fsm.SetSettingsCommand
	if len(pairs) == 2 && string(pairs[0]) == fsm.SettingNotify {
		command = fsm.SetSettingCommand
	}
	c.group.Command(c.srv.cmds.internal(command), c.db, slices.Concat([][]byte{[]byte(command)}, pairs))
	defer c.reset()
	out, err := c.do(false)
	switch {
	case err != nil:
		return "", err
	case out[0] == '-':
		return string(bytes.TrimSpace(out[1:])), nil
	}
	return "", nil
}

// hideRequirePass implements hooks.secrets for CONFIG SET: it hides the value of
// requirepass.
func hideRequirePass(args [][]byte, hide func(i int)) {
	for i := 2; i+1 < len(args); i += 2 {
		if strings.EqualFold(string(args[i]), "requirepass") {
			hide(i + 1)
		}
	}
}

// configSet checks all given parameters before it changes any of them. If it
// then cannot change requirepass, the settings of the cluster have changed
// already.
func configSet(c *conn, args [][]byte) fsm.Reply {
	if len(args)%2 != 0 {
		return fsm.Error(msgSyntax)
	}
	failed := func(name, why string) fsm.Reply {
		return fsm.Error("ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + why)
	}
	all := c.srv.settings()
	changes := make(map[string]string)
	for i := 2; i < len(args); i += 2 { // all names are checked before any value, as in Redis
		name := settingName(args[i])
		if _, known := all[name]; !known {
			return fsm.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + string(args[i]) + "'")
		}
		if p := parameter.Find(name); p != nil && (p.Class == parameter.Immutable || p.Class == parameter.Protected) {
			return failed(string(args[i]), map[parameter.Class]string{
				parameter.Immutable: "can't set immutable config",
				parameter.Protected: "can't set protected config",
			}[p.Class])
		}
		if why := limitRefusal(name); why != "" {
			return failed(string(args[i]), why)
		}
		if _, twice := changes[name]; twice {
			return failed(string(args[i]), "duplicate parameter")
		}
		changes[name] = string(args[i+1])
	}
	var pairs [][]byte // settings that the cluster keeps
	for i := 2; i < len(args); i += 2 {
		name := settingName(args[i])
		value, wrong := checkSetting(name, changes[name], all[name])
		if wrong != "" {
			return failed(string(args[i]), wrong)
		}
		if changes[name] = value; isClusterSetting(name) {
			pairs = append(pairs, []byte(name), []byte(value))
		}
	}
	if text := withoutEffect(changes); text != "" {
		c.srv.log.Info("client changes settings that have no effect", "client", c.id, "settings", text)
	}
	for name, need := range settingFeatures {
		if _, changed := changes[name]; changed && c.srv.cluster.FeatureVersion(need) < need {
			return failed(name, fmt.Sprintf("it needs feature version %d: upgrade every node first", need))
		}
	}
	// Changes that can fail come first.
	if len(pairs) > 0 {
		refusal, err := c.replicate(pairs)
		if err != nil {
			return fsm.Error(errorText(err))
		}
		if refusal != "" { // notify-keyspace-events is the only setting whose value the state machine parses
			return failed(fsm.SettingNotify, strings.TrimPrefix(refusal, "ERR "))
		}
	}
	var incomplete error // error after a change that was executed
	if pass, ok := changes["requirepass"]; ok {
		incomplete = c.users().setDefaultPassword(pass)
		if outcome.Of(incomplete) != outcome.Executed {
			return fsm.Error(errorText(incomplete))
		}
	}
	for name, b := range boundedSettings {
		if value, ok := changes[name]; ok {
			n, _ := b.check(value) // the value was checked above
			b.set(c.srv, n)
		}
	}
	if value, ok := changes["acl-pubsub-default"]; ok {
		c.srv.accounts.openChannels.Store(value == channelDefaults[true])
	}
	if incomplete != nil {
		return fsm.Error(errorText(incomplete))
	}
	return fsm.OK
}

// settingFeatures are the feature versions that settings need.
var settingFeatures = map[string]int{
	fsm.SettingDelay:      fsm.FeatureDelay,
	fsm.SettingIdempotent: fsm.FeatureLocks,
}

// settingName returns the main name of a parameter, given any of its names.
func settingName(word []byte) string {
	name := strings.ToLower(string(word))
	if p := parameter.Find(name); p != nil {
		return p.Name
	}
	return name
}

// withoutEffect returns the names of the changed parameters that are stored but
// have no effect, separated by spaces.
func withoutEffect(changes map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if parameter.Replicated(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// OwnSettings returns the names of the settings that CONFIG SET changes and that
// have an effect.
func OwnSettings() (names []string) {
	names = []string{"acl-pubsub-default", fsm.SettingDelay, fsm.SettingIdempotent, fsm.SettingMaxMemory,
		fsm.SettingNotify, "requirepass"}
	for name := range boundedSettings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// maxTuning is the maximum length in bytes of a value that the cluster keeps:
// see fsm.SetSettingsCommand.
const maxTuning = 512

// defaultMaxMemory is the value with which CONFIG SET removes the cluster's
// setting of maxmemory, so that the flags of the nodes decide again. The
// cluster stores an empty value in its place, which Machine.MaxMemory reads as
// no setting.
const defaultMaxMemory = "default"

// checkSetting checks a new value of a setting. It returns the value in
// canonical form, or the reason why it is rejected.
func checkSetting(name, value, current string) (canonical, wrong string) {
	number, isNumber := boundedSettings[name]
	switch {
	case isNumber:
		_, wrong = number.check(value)
		return value, wrong
	case name == fsm.SettingMaxMemory && strings.EqualFold(value, defaultMaxMemory):
		return "", ""
	case name == "acl-pubsub-default":
		return parameter.Enum(channelDefaults[true], channelDefaults[false])(value)
	case len(value) > maxTuning && isClusterSetting(name):
		return "", "the value is longer than 512 bytes"
	case name == fsm.SettingDelay:
		if err := fsm.CheckLockDelay(value); err != nil {
			return "", err.Error()
		}
		return value, ""
	case parameter.Find(name) == nil:
		return value, ""
	}
	return parameter.Find(name).Check(value, current)
}

// bounded is a setting of this node with an integer value.
type bounded struct {
	low, high int64
	get       func(s *Server) int64
	set       func(s *Server, n int64)
}

var boundedSettings = map[string]bounded{
	"acllog-max-len": {
		0, maxACLLog,
		func(s *Server) int64 { return int64(s.accounts.log.limit()) },
		func(s *Server, n int64) { s.accounts.log.setLimit(int(n)) },
	},
	"latency-monitor-threshold": {
		0, maxThreshold,
		func(s *Server) int64 { return s.diag.latency.Threshold.Load() },
		func(s *Server, n int64) { s.diag.latency.Threshold.Store(n) },
	},
	"slowlog-log-slower-than": {
		-1, maxThreshold,
		func(s *Server) int64 { return s.diag.slowlog.Threshold.Load() },
		func(s *Server, n int64) { s.diag.slowlog.Threshold.Store(n) },
	},
	"slowlog-max-len": {
		0, maxSlowlog,
		func(s *Server) int64 { return int64(s.diag.slowlog.Limit()) },
		func(s *Server, n int64) { s.diag.slowlog.SetLimit(int(n)) },
	},
}

// maxThreshold is Redis' upper bound of thresholds.
const maxThreshold = 1<<63 - 1

// check parses a value. wrong is Redis' error text, or "".
func (b bounded) check(value string) (n int64, wrong string) {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case err != nil:
		return 0, "argument couldn't be parsed into an integer"
	case n < b.low || n > b.high:
		return 0, "argument must be between " + strconv.FormatInt(b.low, 10) +
			" and " + strconv.FormatInt(b.high, 10) + " inclusive"
	}
	return n, ""
}

// maxACLLog bounds acllog-max-len, and so the memory of the ACL log: an entry may keep
// up to 1 KiB of a key.
const maxACLLog = 10000

// channelDefaults contains the values of acl-pubsub-default. The key is true
// for the value with which new users may use all channels.
var channelDefaults = map[bool]string{true: "allchannels", false: "resetchannels"}

func configResetstat(c *conn, args [][]byte) fsm.Reply {
	c.srv.metrics.Reset()
	return fsm.OK
}

func configRewrite(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR The server is running without a config file")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// LimitFlag is the value of a command-line flag that limits clients. CONFIG GET
// prints it, with limitPrefix in front of the name of the flag, and INFO prints it
// in the section holdfast.
type LimitFlag = metrics.LimitFlag

// ClientMemoryLimit returns how many bytes all clients may occupy together if
// Limits.ClientMemory has the value setting.
func ClientMemoryLimit(setting int64) int64 { return clientmem.LimitFor(setting) }

// limitPrefix distinguishes the program's own limits from the parameters of
// Redis.
const limitPrefix = "holdfast-"

// limitSettings returns the limits as CONFIG GET prints them.
func (s *Server) limitSettings() map[string]string {
	all := make(map[string]string)
	for name, f := range s.cfg.LimitFlags {
		all[limitPrefix+name] = f.Value
	}
	return all
}

// limitRefusal returns the reason for which CONFIG SET rejects a setting that
// is a limit of the program. It returns "" for any other setting.
func limitRefusal(name string) string {
	if !strings.HasPrefix(name, limitPrefix) {
		return ""
	}
	return "it is set by --" + strings.TrimPrefix(name, limitPrefix) + " when the node starts"
}

// infoLimits prints the limits in the section holdfast of INFO.
func infoLimits(p *infoPage) {
	flags := p.srv.cfg.LimitFlags
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		p.line("limit_"+strings.ReplaceAll(name, "-", "_"), flags[name].Value)
	}
}
